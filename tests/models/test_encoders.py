"""The encoders: how far they see in time, and that neither padding nor company changes anything."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from avfusion.clock import SAMPLES_PER_VIDEO_FRAME
from avfusion.media.audio import LogMel
from avfusion.models import visual
from avfusion.models.audio import AudioEncoder
from avfusion.models.visual import VisualEncoder

REACH_S = 0.12


def times_that_matter(output: Tensor, given: Tensor) -> Tensor:
    """Indices along time (axis 1 of ``given``, which has one row) of the input on which ``output`` depends."""
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(5))
    (gradient,) = torch.autograd.grad((output * direction).sum(), given)
    strength = gradient.abs().flatten(2).sum(2)[0] if gradient.ndim > 2 else gradient.abs()[0]
    return (strength > 1e-6 * strength.max()).nonzero().flatten()  # less is rounding of the FFT


@pytest.mark.parametrize(("channels", "kernel"), [((8, 8, 8), 5), ((16, 32, 64, 80), 3)])
def test_visual_encoder_sees_at_most_120_ms_either_way(channels: tuple[int, ...], kernel: int) -> None:
    torch.manual_seed(0)
    encoder = VisualEncoder(16, channels, temporal_kernel=kernel).eval()
    crops = torch.rand(1, 21, 48, 48, requires_grad=True)
    seen = times_that_matter(encoder(crops)[0, 10], crops) - 10
    assert seen.min() == -encoder.reach_frames
    assert seen.max() == encoder.reach_frames
    assert encoder.reach_frames / 25 <= REACH_S


def test_audio_encoder_hears_at_most_120_ms_of_sound_either_way() -> None:
    """Measured on the waveform: the window of the spectrogram counts too."""
    torch.manual_seed(0)
    encoder = AudioEncoder(16, 40, (8, 8, 8), temporal_kernel=15).eval()
    sound = torch.randn(1, 20 * SAMPLES_PER_VIDEO_FRAME, requires_grad=True)
    heard = times_that_matter(encoder(LogMel(40)(sound))[0, 40], sound) - 40 * 160
    assert heard.min() / 16000 >= -REACH_S
    assert heard.max() / 16000 <= REACH_S
    assert heard.max() / 16000 >= 0.1  # it does use what it may


def test_keys_stay_at_100_hz() -> None:
    encoder = AudioEncoder(16, 64, (8, 8, 8))
    assert encoder(torch.randn(2, 37, 64)).shape == (2, 37, 16)


def test_padding_changes_no_visual_embedding() -> None:
    torch.manual_seed(0)
    encoder = VisualEncoder(16, (8, 8, 8)).eval()
    crops = torch.rand(1, 9, 48, 48)
    padded = torch.cat([crops, torch.rand(1, 6, 48, 48)], dim=1)
    mask = torch.arange(15)[None] < 9
    torch.testing.assert_close(encoder(padded, mask)[:, :9], encoder(crops), atol=1e-5, rtol=0)
    assert encoder(padded, mask)[:, 9:].abs().max() == 0


def test_padding_changes_no_audio_embedding() -> None:
    torch.manual_seed(0)
    encoder = AudioEncoder(16, 40, (8, 8)).eval()
    log_mel = torch.randn(1, 36, 40)
    padded = torch.cat([log_mel, torch.randn(1, 20, 40)], dim=1)
    mask = torch.arange(56)[None] < 36
    torch.testing.assert_close(encoder(padded, mask)[:, :36], encoder(log_mel), atol=1e-5, rtol=0)
    assert encoder(padded, mask)[:, 36:].abs().max() == 0


def test_bytes_and_floats_are_the_same_picture() -> None:
    torch.manual_seed(0)
    encoder = VisualEncoder(16, (8, 8, 8)).eval()
    crops = torch.randint(0, 256, (1, 5, 48, 48), dtype=torch.uint8)
    torch.testing.assert_close(encoder(crops), encoder(crops.float() / 255))


def test_an_even_kernel_has_no_centre() -> None:
    with pytest.raises(ValueError, match="odd"):
        VisualEncoder(16, (8, 8), temporal_kernel=4)


@pytest.mark.parametrize("side", [1, 2, 3, 5, 7])
def test_pooling_is_the_mean_over_the_places_of_adaptive_pooling(side: int) -> None:
    maps = torch.randn(4, 6, side, side, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.adaptive_avg_pool2d(maps, visual.POOLED_SIDE)
    torch.testing.assert_close(visual._pooled(maps).mT.unflatten(2, (3, 3)), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("pixels", [1, 3 * 24 * 24, 10 * 24 * 24, 21 * 24 * 24])
def test_frames_may_pass_the_convolutions_in_any_number(pixels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, three, one clip, or two clips at a time, against all at once; the last clip is padded."""
    torch.manual_seed(0)
    encoder = VisualEncoder(16, (8, 8, 8)).double()  # so exact that rounding cannot hide a fault
    crops, mask = torch.rand(3, 10, 24, 24, dtype=torch.float64), torch.ones(3, 10, dtype=torch.bool)
    mask[2, 6:] = False

    def outcome(cached: int) -> tuple[Tensor, list[Tensor]]:
        monkeypatch.setattr(visual, "CACHED_PIXELS", cached // torch.get_num_threads())
        out = encoder(crops, mask)
        return out, list(torch.autograd.grad((out**3).sum(), list(encoder.parameters())))

    whole, gradients = outcome(10**9)
    parted, parted_gradients = outcome(pixels)
    torch.testing.assert_close(parted, whole, rtol=0, atol=1e-12)
    for one, other in zip(parted_gradients, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12 * float(other.abs().max()))


@pytest.mark.parametrize(("channels", "side"), [(4, 12), (8, 9), (24, 16)])
def test_picking_pixels_first_is_the_strided_convolution(channels: int, side: int) -> None:
    """A strided 1x1 convolution of fewer than 8 channels destroys memory on some processors; this one never may."""
    torch.manual_seed(0)
    convolution = visual.EveryOther(channels, 8, 2)
    maps = torch.randn(24, channels, side, side).contiguous(memory_format=torch.channels_last).requires_grad_()
    picked = convolution(maps)
    # Written out, since the library's own strided convolution is what cannot be trusted.
    expected = torch.einsum("oc,ncyx->noyx", convolution.weight[:, :, 0, 0], maps[:, :, ::2, ::2])
    torch.testing.assert_close(picked, expected, rtol=0, atol=1e-5)
    direction = torch.randn_like(picked)
    inputs = (maps, convolution.weight)
    found, right = (torch.autograd.grad((out * direction).sum(), inputs) for out in (picked, expected))
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)
    assert not any(
        isinstance(m, torch.nn.Conv2d) and m.kernel_size == (1, 1) and m.stride != (1, 1)
        for m in VisualEncoder(16, (4, 8, 8)).modules()
    )


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("padded", [False, True])
def test_frames_in_between_are_compared_as_in_the_whole_clip(ahead: int, padded: bool) -> None:
    """A part with the frames around it, against the same frames of the whole, bit for bit; channels last in memory."""
    crops = torch.randint(0, 256, (2, 9, 4, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mask = None
    if padded:
        mask = torch.ones(2, 9, dtype=torch.bool)
        mask[0, 5:], mask[1, :2] = False, False
    whole = visual._maps(crops, mask, ahead, 0, None).unflatten(0, (2, 9))
    assert visual._maps(crops, mask, ahead, 0, None).is_contiguous(memory_format=torch.channels_last)
    past = 2 - ahead
    for first, last in ((0, 4), (4, 7), (7, 9)):
        begin, end = max(0, first - past), min(9, last + ahead)
        around = None if mask is None else mask[:, begin:end]
        part = visual._maps(crops[:, begin:end], around, ahead, first - begin, last - begin)
        assert torch.equal(part.unflatten(0, (2, last - first)), whole[:, first:last])


def test_crops_of_floats_stay_as_they_were() -> None:
    crops = torch.rand(1, 4, 24, 24)
    before = crops.clone()
    VisualEncoder(8, (4, 4))(crops)
    assert torch.equal(crops, before)


def test_the_gradient_of_picked_pixels_keeps_the_channels_last() -> None:
    """Else the layers below work on two layouts at once, several times as slowly."""
    maps = torch.randn(3, 8, 6, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    visual.EveryOther(8, 4, 2)(maps).sum().backward()
    assert maps.grad is not None
    assert maps.grad.is_contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        convolution = visual.EveryOther(8, 4, 2)
        sliced = convolution(maps.detach())
    assert torch.equal(sliced, convolution(maps))
