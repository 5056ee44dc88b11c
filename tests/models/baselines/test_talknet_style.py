"""The TalkNet-style parts: who attends to what, what is added where, and that there are no positions."""

from __future__ import annotations

import torch

from avfusion.models.attention import capture_attention
from avfusion.models.baselines.talknet_style import SqueezedBlock, TalkNetFusion, WholeTrackAttention
from tests.models.baselines.planted import clip, tiny_model

DIM, HEADS, FRAMES = 8, 2, 7


def parts(seed: int = 0) -> tuple[TalkNetFusion, torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    return TalkNetFusion(DIM, HEADS).eval(), torch.randn(1, FRAMES, DIM), torch.randn(1, 4 * FRAMES, DIM)


def test_parameters_by_hand() -> None:
    fusion, _, _ = parts()
    attention = 4 * DIM * DIM + 4 * DIM  # query, key, value, out
    feed_forwards = (2 + 4) * 2 * DIM * DIM + (2 + 4) * DIM + 2 * DIM + 2 * 2 * DIM
    assert sum(p.numel() for p in fusion.parameters()) == 2 * attention + feed_forwards + 2 * DIM


def test_what_is_found_is_added_to_the_stream_that_was_attended_to() -> None:
    """With both attentions silenced, the first half is the sound alone and the second the picture alone."""
    fusion, video, audio = parts()
    for attention in (fusion.video_from_audio, fusion.audio_from_video):
        torch.nn.init.zeros_(attention.out.weight)
        torch.nn.init.zeros_(attention.out.bias)
    fused = fusion(video, audio)
    heard = audio.unflatten(1, (FRAMES, 4)).mean(dim=2)
    torch.testing.assert_close(fused[..., :DIM], heard + fusion.feed_forward(heard))
    torch.testing.assert_close(fused[..., DIM:], video + fusion.video_feed_forward(video))


def test_sound_reaches_the_first_half_around_the_attention() -> None:
    fusion, video, audio = parts()
    nothing_heard = torch.zeros(1, 4 * FRAMES, dtype=torch.bool)
    quiet, loud = fusion(video, audio, None, nothing_heard), fusion(video, 3 * audio, None, nothing_heard)
    assert (quiet - loud)[..., :DIM].abs().max() > 0.1


def test_there_are_no_positions_frames_in_another_order_come_out_in_that_order() -> None:
    fusion, video, audio = parts()
    block = WholeTrackAttention(2 * DIM, HEADS).eval()
    order = torch.randperm(FRAMES)
    moved = audio.unflatten(1, (FRAMES, 4))[:, order].flatten(1, 2)
    torch.testing.assert_close(
        block(fusion(video[:, order], moved)), block(fusion(video, audio))[:, order], atol=1e-5, rtol=0
    )


def test_maps_are_captured_at_25_hz_and_told_at_100() -> None:
    model = tiny_model("talknet_style")
    crops, log_mel = clip(12)
    plain = model(crops, log_mel)
    with capture_attention(model) as maps:
        asked = model(crops, log_mel, need_alignment=True)
    assert torch.equal(plain.logits, asked.logits)
    weights = maps["fusion.0.video_from_audio"]
    assert torch.equal(asked.alignment[0, :, 0].detach(), weights)
    by_frame = weights.unflatten(-1, (12, 4))
    assert torch.equal(by_frame, by_frame[..., :1].expand_as(by_frame))
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, 4, 12))
    assert maps["fusion.0.audio_from_video"].shape == (1, 4, 12, 12)


def test_channels_are_weighed_by_their_mean_over_the_real_sound() -> None:
    """With a gate that passes its input on, written out for one clip."""
    torch.manual_seed(0)
    block = SqueezedBlock(3, 4, step=2).eval()
    block.weigh = torch.nn.Identity()
    x = torch.randn(1, 3, 8, 6)
    mask = torch.arange(8)[None] < 6
    found, halved = block(x, mask)
    assert halved.tolist() == [[True, True, True, False]]
    inner = block.norm2(block.convolve2(block.norm1(block.convolve1(x[:, :, :6])).relu()))
    weighed = inner * inner.mean(dim=(2, 3), keepdim=True)
    expected = (weighed + block.skip(x[:, :, :6:2, ::2])).relu()
    torch.testing.assert_close(found[:, :, :3], expected, atol=1e-5, rtol=1e-5)
