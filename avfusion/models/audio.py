"""Log-mel frames to one embedding per audio frame, 100 a second.

The convolutions stride in frequency only: keys keep the 10 ms step of the spectrogram.
``N`` sounds, ``A`` audio frames, ``M`` mel bins, ``D`` features.
"""

from __future__ import annotations

from collections.abc import Sequence

from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from avfusion.models.layers import TemporalConvolution, first_steps, keep_real


class AudioEncoder(nn.Module):
    """Log-mel to embeddings; each sees ``past_frames`` audio frames before its own and ``ahead_frames`` after it.

    Both are ``reach_frames`` unless ``ahead_frames`` is given. With -1 an embedding does not even see the spectrum of
    its own frame, whose window of 25 ms reaches 12.5 ms beyond it.

    There is no normalisation inside the convolutions: one taken over time would let every frame hear the whole clip.

    Args:
        embed_dim: ``D``.
        num_mels: ``M``.
        channels: channels of the convolutions; every one halves the frequency axis and sees one frame on either side.
        temporal_kernel: audio frames seen by the convolution over time, odd.
        dropout: share of features dropped in training.
        ahead_frames: -1 or more; None, and at most, the reach of the centred convolutions.
    """

    def __init__(
        self,
        embed_dim: int,
        num_mels: int = 64,
        channels: Sequence[int] = (16, 32, 48),
        temporal_kernel: int = 11,
        dropout: float = 0.0,
        ahead_frames: int | None = None,
    ) -> None:
        super().__init__()
        self.reach_frames = len(channels) + temporal_kernel // 2
        self.ahead_frames = self.reach_frames if ahead_frames is None else min(ahead_frames, self.reach_frames)
        self.past_frames = 2 * self.reach_frames - self.ahead_frames
        self.convolutions = nn.ModuleList()
        bands, previous, left = num_mels, 1, self.ahead_frames
        for width in channels:
            ahead = min(1, left)
            left -= ahead
            convolution = nn.Conv2d(previous, width, 3, stride=(1, 2), padding=(2 - ahead, 1))
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            self.convolutions.append(convolution)
            bands, previous = (bands + 1) // 2, width
        self.project = nn.Linear(previous * bands, embed_dim)
        self.project_norm = nn.LayerNorm(embed_dim)
        self.temporal = TemporalConvolution(embed_dim, temporal_kernel, dropout=dropout, ahead=left)
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, log_mel: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encodes sound.

        Args:
            log_mel: ``(N, A, M)``.
            mask: ``(N, A)``, True = real.

        Returns:
            ``(N, A, D)``.
        """
        maps = rearrange(
            log_mel[..., None], "n a m c -> n c a m"
        )  # channels last in memory: so convolutions are fastest
        keep = None if mask is None else mask[:, None, :, None]
        for convolution in self.convolutions:
            if keep is not None:
                maps = maps.masked_fill(~keep, 0.0)
            maps = first_steps(F.relu(convolution(maps), inplace=True), log_mel.shape[1])
        embedded = self.project_norm(self.project(rearrange(maps, "n c a m -> n a (c m)")))
        out: Tensor = self.norm(self.temporal(embedded, mask))
        return keep_real(out, mask)
