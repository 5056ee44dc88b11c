"""The light parts: counted by hand, the GRU against one that never saw padding, pools and sums written out."""

from __future__ import annotations

import torch

from avfusion.config import ModelConfig
from avfusion.models import build_model
from avfusion.models.baselines.light_style import LightAudioEncoder, LightVisualEncoder, TrackGRU, VisualPath
from avfusion.models.fusion import SumFusion
from tests.models.baselines.planted import clip, tiny_model


def path_count(before: int, width: int, kernel: int, space: int) -> int:
    return before * width * space + 2 * width + width * width * kernel + 2 * width


def test_parameters_by_hand() -> None:
    dim, widths = 16, (4, 8)
    visual = audio = 0
    for before, width in ((1, 4), (4, 8)):
        mixed = width * width + 2 * width
        visual += sum(path_count(before, width, kernel, kernel * kernel) for kernel in (3, 5)) + mixed
        audio += sum(path_count(before, width, kernel, kernel) for kernel in (3, 5)) + mixed
    after = widths[-1] * dim + dim + 2 * dim
    assert sum(p.numel() for p in LightVisualEncoder(dim, widths).parameters()) == visual + after
    assert sum(p.numel() for p in LightAudioEncoder(dim, widths).parameters()) == audio + after
    assert sum(p.numel() for p in TrackGRU(dim).parameters()) == 2 * 3 * (2 * dim * dim + 2 * dim)


def test_the_gru_runs_over_the_real_frames_as_if_there_were_no_others() -> None:
    """Frames missing at the end, in the middle, at the start; none missing; all missing."""
    torch.manual_seed(0)
    track = TrackGRU(6)
    x = torch.randn(5, 9, 6, requires_grad=True)
    mask = torch.ones(5, 9, dtype=torch.bool)
    mask[0, 5:], mask[1, 3:6], mask[2, :4], mask[4] = False, False, False, False
    found = track(x, mask)
    for row in range(4):
        expected, _ = track.gru(x[row : row + 1, mask[row]])
        torch.testing.assert_close(found[row, mask[row]], expected[0], atol=1e-6, rtol=1e-5)
    assert not found[~mask].any()
    (gradient,) = torch.autograd.grad((found**2).sum(), x)
    assert not gradient[~mask].any()
    torch.testing.assert_close(track(x[3:4]), found[3:4], atol=1e-6, rtol=1e-5)


def test_time_is_convolved_at_each_pixel() -> None:
    """Against a 3D convolution with the same kernels."""
    torch.manual_seed(0)
    path = VisualPath(2, 3, 5, stride=1)
    path.space_norm = path.time_norm = torch.nn.Identity()
    maps = torch.randn(4, 2, 6, 6)
    within = path.space(maps).relu()
    expected = torch.nn.functional.conv3d(
        within.movedim(0, 1)[None], path.time.weight[..., None], padding=(2, 0, 0)
    ).relu()
    torch.testing.assert_close(path(maps, 4, None), expected[0].movedim(1, 0), atol=1e-5, rtol=1e-5)


def test_streams_are_summed() -> None:
    video, audio = torch.randn(1, 3, 4), torch.randn(1, 12, 4)
    expected = video.clone()
    for frame in range(3):
        expected[0, frame] += audio[0, 4 * frame : 4 * frame + 4].mean(dim=0)
    torch.testing.assert_close(SumFusion()(video, audio), expected)
    mask = torch.tensor([[True, True, False]])
    assert not SumFusion()(video, audio, mask)[0, 2].any()


def test_a_sum_serves_our_own_model_too() -> None:
    config = ModelConfig(embed_dim=16)
    config.visual.channels, config.audio.channels = [4, 8], [4]
    config.fusion.kind = "sum"
    model = build_model(config, 24)
    assert not any(name.startswith("fusion") for name in model.state_dict())
    crops, log_mel = clip(6)
    quiet, loud = model(crops, log_mel).logits, model(crops, 2 * log_mel).logits
    assert (quiet - loud).abs().max() > 1e-6


def test_it_has_no_alignment() -> None:
    assert tiny_model("light_style")(*clip(6), need_alignment=True).alignment is None
