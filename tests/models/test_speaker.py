"""Attention between faces: a set of any size, absent faces change nothing, one face stays as it was."""

from __future__ import annotations

import itertools

import pytest
import torch

from avfusion.config import Config, with_overrides
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.models.speaker import SpeakerAttention

SMALL = ["--model.embed_dim=16", "--model.visual.channels=[4,8]", "--model.audio.channels=[4]", "--data.num_mels=20"]


def strong(layer: SpeakerAttention) -> SpeakerAttention:
    """Weights large enough for every face to matter."""
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer.eval()


def detector(*overrides: str) -> ActiveSpeakerDetector:
    config = with_overrides(Config(), [*SMALL, *overrides])
    model = build_model(config.model, config.data.num_mels).eval()
    for layer in model.speaker:
        strong(layer)  # type: ignore[arg-type]
    return model


def test_weights_are_a_softmax_over_the_others_and_the_token() -> None:
    torch.manual_seed(0)
    layer = strong(SpeakerAttention(8, 2))
    x = torch.randn(1, 3, 1, 8)
    output, weights = layer(x, need_weights=True)
    query, key, value = layer.qkv(layer.pre_norm(x[0, :, 0])).view(3, 3, 2, 4).unbind(1)
    normed = [v / v.square().mean(-1, keepdim=True).add(1e-6).sqrt() for v in (query, key)]
    normed[0] = normed[0] * layer.norm.scale[:, None]  # one temperature for each head
    expected = x[0, :, 0].clone()
    for asking in range(3):
        heads = []
        for head in range(2):
            others = [face for face in range(3) if face != asking]
            logits = [normed[0][asking, head] @ normed[1][face, head] / 2 for face in others]
            share = torch.stack([*logits, normed[0][asking, head] @ layer.off_screen_key[head] / 2]).softmax(0)
            for face, weight in zip(others, share, strict=False):
                torch.testing.assert_close(weights[0, 0, head, asking, face], weight)
            heads.append(sum(w * value[face, head] for face, w in zip(others, share, strict=False)))
        expected[asking] += layer.out(torch.cat(heads))
    torch.testing.assert_close(output[0, :, 0], expected)
    assert (weights.diagonal(dim1=-2, dim2=-1) == 0).all()


@pytest.mark.parametrize("faces", [1, 2, 3, 5, 16])
def test_the_order_of_the_faces_means_nothing(faces: int) -> None:
    torch.manual_seed(faces)
    model = detector("--model.speaker.layers=2")
    crops, sound = torch.rand(2, faces, 12, 24, 24), torch.randn(2, 48, 20)
    mask = torch.rand(2, faces, 12) < 0.8
    order = torch.randperm(faces)
    scores = model(crops, sound, mask).logits
    torch.testing.assert_close(
        model(crops[:, order], sound, mask[:, order]).logits, scores[:, order], atol=1e-5, rtol=0
    )


def test_absent_and_padded_faces_change_nothing_and_get_no_gradient() -> None:
    torch.manual_seed(0)
    model = detector("--model.speaker.layers=1")
    crops, sound = torch.rand(1, 4, 12, 24, 24), torch.randn(1, 48, 20)
    mask = torch.ones(1, 4, 12, dtype=torch.bool)
    mask[:, 2:] = False  # nobody there at all
    mask[:, 1, 6:] = False  # leaves in the middle
    two = model(crops[:, :2], sound, mask[:, :2]).logits
    crops.requires_grad_()
    four = model(crops, sound, mask).logits
    torch.testing.assert_close(four[:, :2], two, atol=1e-6, rtol=0)
    four[mask].sum().backward()
    assert crops.grad is not None
    assert (crops.grad[:, 2:] == 0).all()
    assert (crops.grad[:, 1, 7:] == 0).all()  # the picture after the last is seen as a change by none
    changed = crops.detach().clone()
    changed[:, 2:] = torch.rand_like(changed[:, 2:])
    torch.testing.assert_close(model(changed, sound, mask).logits[:, :2], two, atol=1e-6, rtol=0)


def test_a_face_alone_is_scored_as_without_the_layer() -> None:
    torch.manual_seed(0)
    between, without = detector("--model.speaker.layers=2"), detector()
    left_out = between.load_state_dict(without.state_dict(), strict=False)
    assert all(name.startswith("speaker.") for name in left_out.missing_keys)
    crops, sound = torch.rand(2, 1, 12, 24, 24), torch.randn(2, 48, 20)
    assert torch.equal(between(crops, sound).logits, without(crops, sound).logits)
    both = torch.rand(2, 2, 12, 24, 24)
    both[:, :1] = crops
    assert (between(both, sound).logits[:, 0] - without(both, sound).logits[:, 0]).abs().max() > 1e-3
    there = torch.ones(2, 2, 12, dtype=torch.bool)
    there[:, 1] = False
    torch.testing.assert_close(
        between(both, sound, there).logits[:, :1], without(crops, sound).logits, atol=1e-6, rtol=0
    )


def test_a_scene_can_grow_one_face_at_a_time() -> None:
    """What is trained on two faces runs on sixteen; each face more moves the scores of the others a little."""
    torch.manual_seed(0)
    model = detector("--model.speaker.layers=1")
    crops, sound = torch.rand(1, 16, 12, 24, 24), torch.randn(1, 48, 20)
    first = [model(crops[:, :faces], sound).logits[0, 0] for faces in (1, 2, 3, 16)]
    for one, other in itertools.pairwise(first):
        assert torch.isfinite(other).all()
        assert not torch.allclose(one, other, atol=1e-5)
