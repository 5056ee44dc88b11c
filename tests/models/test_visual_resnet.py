"""The ResNet encoder: its size, how far it sees, that frames stay apart, and how it starts from ImageNet."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import resnet18

from avfusion.models import imagenet, visual
from avfusion.models.imagenet import load_imagenet
from avfusion.models.visual_resnet import GREY_MEAN, GREY_STD, ResNetEncoder
from tests.models.test_encoders import times_that_matter


def encoder_of(**options: object) -> ResNetEncoder:
    torch.manual_seed(0)
    return ResNetEncoder(16, **options).eval()


def torchvision_like(seed: int = 3) -> nn.Module:
    """Torchvision's network with statistics and scales that are not those it begins with."""
    torch.manual_seed(seed)
    network = resnet18(weights=None)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
    return network.eval()


def before_pooling(network: nn.Module, pictures: Tensor) -> Tensor:
    """Torchvision's ``(N, 3, Y, X)`` to its last maps."""
    kept = {}
    network.layer4.register_forward_hook(lambda module, inputs, output: kept.update(maps=output))
    network(pictures)
    return kept["maps"]


def test_parameters_are_those_of_the_network_with_a_stem_of_five_frames() -> None:
    trunk = 11_689_512 - 513_000 - 64 * 3 * 49 + 64 * 5 * 49  # torchvision's count, no classifier, another stem
    dim = 16
    after = 512 * 9 * dim + dim + dim * 3 + dim + 2 * dim + 4 * dim * dim + 3 * dim + 2 * dim
    for fixed in (False, True):
        assert sum(p.numel() for p in encoder_of(fixed_statistics=fixed).parameters()) == trunk + after


@pytest.mark.parametrize(
    ("kernel", "ahead", "seen"), [(3, None, (-3, 3)), (1, None, (-2, 2)), (3, 0, (-6, 0)), (3, 1, (-5, 1))]
)
def test_it_sees_what_it_says(kernel: int, ahead: int | None, seen: tuple[int, int]) -> None:
    encoder = encoder_of(temporal_kernel=kernel, ahead_frames=ahead)
    crops = torch.rand(1, 17, 32, 32, requires_grad=True)
    found = times_that_matter(encoder(crops)[0, 8], crops) - 8
    assert (int(found.min()), int(found.max())) == seen == (-encoder.past_frames, encoder.ahead_frames)


@pytest.mark.parametrize("fixed", [False, True])
def test_neither_padding_nor_company_changes_an_embedding_or_gradient_in_training(fixed: bool) -> None:
    encoder = encoder_of(fixed_statistics=fixed).train()
    crops, weight = torch.rand(1, 5, 32, 32), encoder.stages[2].convolve1.weight
    alone = encoder(crops)
    (gradient_alone,) = torch.autograd.grad((alone**3).sum(), weight)
    padded = torch.cat([torch.cat([crops, torch.rand(1, 4, 32, 32)], dim=1), torch.rand(1, 9, 32, 32)])
    mask = torch.arange(9)[None] < torch.tensor([5, 9])[:, None]
    together = encoder(padded, mask)
    torch.testing.assert_close(together[:1, :5], alone, atol=1e-5, rtol=0)
    assert together[0, 5:].abs().max() == 0
    (gradient,) = torch.autograd.grad((together[0, :5] ** 3).sum(), weight)
    torch.testing.assert_close(gradient, gradient_alone, rtol=1e-3, atol=1e-4 * float(gradient_alone.abs().max()))


def test_frames_pass_in_any_number_and_bytes_are_the_same_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_of()
    crops = torch.randint(0, 256, (2, 7, 32, 32), dtype=torch.uint8)
    whole = encoder(crops)
    monkeypatch.setattr(visual, "CACHED_PIXELS", 3 * 32 * 32 // torch.get_num_threads())
    torch.testing.assert_close(encoder(crops.float() / 255), whole, atol=1e-5, rtol=0)


def test_from_imagenet_each_frame_is_seen_as_torchvision_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any video: the frames around one have no weight yet. Grey is three equal colours."""
    network, encoder = torchvision_like(), encoder_of(fixed_statistics=True)
    monkeypatch.setattr(imagenet, "fetch_imagenet", network.state_dict)
    before = {key: value.clone() for key, value in encoder.state_dict().items() if not key.startswith("st")}
    load_imagenet(nn.ModuleList([encoder]))
    for key, value in before.items():
        assert torch.equal(encoder.state_dict()[key], value), key

    crops = torch.rand(1, 6, 64, 64)
    kept = {}
    encoder.stages.register_forward_hook(lambda module, inputs, output: kept.update(maps=output))
    with torch.no_grad():
        encoder(crops)
    grey = ((crops[0, :, None] - GREY_MEAN) / GREY_STD).expand(-1, 3, -1, -1)
    with torch.no_grad():
        expected = before_pooling(network, grey)
    torch.testing.assert_close(kept["maps"], expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_the_frame_itself_gets_the_kernels_where_the_encoder_looks_back_only(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_of(fixed_statistics=True, ahead_frames=0)
    network = torchvision_like()
    monkeypatch.setattr(imagenet, "fetch_imagenet", network.state_dict)
    load_imagenet(encoder)
    kernels = encoder.stem[0].weight
    torch.testing.assert_close(kernels[:, 4], network.conv1.weight.sum(dim=1))
    assert not kernels[:, :4].any()


def test_statistics_stay_in_training() -> None:
    encoder = encoder_of(fixed_statistics=True).train()
    before = {key: value.clone() for key, value in encoder.named_buffers()}
    assert len(before) == 2 * 20  # a norm after each of 17 convolutions, and after the 3 projections
    encoder(torch.rand(2, 4, 32, 32)).sum().backward()
    assert all(torch.equal(value, before[key]) for key, value in encoder.named_buffers())
