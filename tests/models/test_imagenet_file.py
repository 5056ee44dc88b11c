"""ImageNet's weights from torch's cache of downloads: used where they are, and told in one line where they are not."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from torchvision.models import resnet18, resnet34

from avfusion.errors import AvfusionError
from avfusion.models import imagenet
from avfusion.models.imagenet import fetch_imagenet
from tests.models.test_visual_resnet import torchvision_like

NAME = "resnet18-f37072fd.pth"
URL = f"https://download.pytorch.org/models/{NAME}"


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """Torch's folder of downloads, a folder that is not there yet."""
    before = torch.hub.get_dir()
    torch.hub.set_dir(tmp_path / "hub")
    yield tmp_path / "hub" / "checkpoints"
    torch.hub.set_dir(before)


def saved(content: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return torchvision_like().state_dict()


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}], ids=["archive", "pickle"])
def test_a_file_put_there_by_hand_is_used(
    cache: Path, weights: dict[str, torch.Tensor], options: dict[str, bool]
) -> None:
    cache.mkdir(parents=True)
    (cache / NAME).write_bytes(saved(weights, **options))
    found = fetch_imagenet()
    assert found.keys() == {k for k in weights if not k.startswith("fc.") and not k.endswith("num_batches_tracked")}
    assert all(torch.equal(value, weights[key]) for key, value in found.items())


def archive_of_text() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "no weights")
    return file.getvalue()


def one_bit_turned(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


Weights = dict[str, torch.Tensor]
WRONG: dict[str, tuple[Callable[[Weights], bytes], str]] = {
    "empty": (lambda w: b"", "is empty"),
    "a page": (lambda w: b"<!DOCTYPE html>\n<html>\xe2\x80\x9cno such file</html>\n" * 40, "is text"),
    "a message": (lambda w: b"rate limit exceeded", "is text"),
    "a picture": (lambda w: b"\x89PNG\r\n\x1a\n" + bytes(900), "is no file of weights, or cut short"),
    "cut short": (lambda w: saved(w)[:-9000], "is damaged or cut short"),
    "cut short, the older form": (
        lambda w: saved(w, _use_new_zipfile_serialization=False)[:-9000], "is no file of weights, or cut short",
    ),
    "a bit turned": (lambda w: one_bit_turned(saved(w)), "is damaged or cut short"),
    "another archive": (lambda w: archive_of_text(), "is damaged or cut short"),
    "a whole model": (lambda w: saved(torch.nn.ReLU()), "holds other objects than tensors"),
    "a pickled object": (lambda w: pickle.dumps(date(2000, 1, 1)), "is no file of weights, or cut short"),
    "a list": (lambda w: saved([w]), "holds list and not weights by name"),
    "numbered": (lambda w: saved({1: torch.zeros(2)}), "holds dict and not weights by name"),
    "within a checkpoint": (lambda w: saved({"model": w}), "lacks bn1.bias"),
    "names of data-parallel training": (lambda w: saved({f"module.{k}": v for k, v in w.items()}), "lacks bn1.bias"),
    "a ResNet-34": (
        lambda w: saved(resnet34().state_dict()), "holds layer1.2.bn1.bias, which is no weight of it",
    ),
    "for grey pictures": (
        lambda w: saved(w | {"conv1.weight": torch.zeros(64, 1, 7, 7)}),
        "holds conv1.weight of shape (64, 1, 7, 7) instead of (64, 3, 7, 7)",
    ),
    "a number": (lambda w: saved(w | {"conv1.weight": 1.0}), "holds conv1.weight that is no tensor of decimal numbers"),
    "whole numbers": (
        lambda w: saved(w | {"conv1.weight": w["conv1.weight"].long()}),
        "holds conv1.weight that is no tensor of decimal numbers",
    ),
    "nothing but shapes": (
        lambda w: saved({k: v.to("meta") for k, v in w.items()}),
        "holds conv1.weight with numbers that are missing or infinite",
    ),
    "not a number": (
        lambda w: saved(w | {"bn1.bias": w["bn1.bias"] * float("nan")}),
        "holds bn1.bias with numbers that are missing or infinite",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "told"), WRONG.values(), ids=WRONG.keys())
@pytest.mark.filterwarnings("error")  # beside the line nothing is said
def test_another_file_in_its_place_is_told_in_one_line(
    cache: Path, weights: Weights, content: Callable[[Weights], bytes], told: str
) -> None:
    cache.mkdir(parents=True)
    (cache / NAME).write_bytes(content(weights))
    with pytest.raises(AvfusionError) as caught:
        fetch_imagenet()
    assert str(caught.value) == (
        f"model.visual.weights=imagenet: {cache / NAME} {told}, expected torchvision's ResNet-18; take it away and it"
        f" is fetched from {URL}, or start without: --model.visual.weights=null"
    )


def test_a_folder_in_its_place_is_told(cache: Path) -> None:
    (cache / NAME).mkdir(parents=True)
    with pytest.raises(AvfusionError, match=rf"{NAME} is a folder, expected torchvision's ResNet-18; take it away"):
        fetch_imagenet()


def test_a_cache_that_cannot_be_made_is_told(cache: Path) -> None:
    cache.parent.mkdir()
    cache.touch()
    with pytest.raises(AvfusionError, match=r"cannot be had \(.*File exists.*\); put that file into .*checkpoints by"):
        fetch_imagenet()


def test_without_a_network_it_says_what_to_do_in_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*arguments: object, **options: object) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    with pytest.raises(AvfusionError) as caught:
        fetch_imagenet()
    assert str(caught.value) == (
        f"model.visual.weights=imagenet: {URL} cannot be had (Name or service not known); put that file into {cache} by"
        " hand, or start without: --model.visual.weights=null"
    )


def test_what_is_fetched_is_kept_and_held_against_its_checksum(
    cache: Path, weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fetched(url: str, path: str, hash_prefix: str) -> None:
        asked.append((url, hash_prefix))
        Path(path).write_bytes(saved(weights))

    monkeypatch.setattr(torch.hub, "download_url_to_file", fetched)
    for _ in range(2):
        assert torch.equal(fetch_imagenet()["conv1.weight"], weights["conv1.weight"])
    assert asked == [(URL, "f37072fd")]


def test_the_shape_of_torchvisions_network_is_asked_of_it() -> None:
    """Of its 122 entries, all but the classifier's two and the 20 counters."""
    assert len(imagenet._checked(resnet18().state_dict())) == 122 - 2 - 20
