"""Exported files give the model's numbers at every size, say how their input is made, and are checked before kept."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from avfusion.checkpoint import save_checkpoint
from avfusion.config import Config, load_config
from avfusion.errors import AvfusionError, UsageError, run_command
from avfusion.media.audio import LogMel
from avfusion.models import build_model, context_frames
from avfusion.models import export as command
from avfusion.models.export_form import ExportForm, SceneSizes, largest_difference
from tests.models.baselines.planted import tiny_config as kind_config

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SIDE, MELS = 16, 20
OTHER_SIZES = [SceneSizes(1, 1, 2), SceneSizes(1, 4, 50), SceneSizes(2, 1, 97, masked=True), SceneSizes(1, 1, 300)]


def tiny_config(causal: bool = False) -> Config:
    """A model of every part there is, two faces knowing of each other."""
    config = Config()
    config.data.crop_size, config.data.num_mels, config.data.region = SIDE, MELS, [0.1, 0.2, 0.9, 1.0]
    config.model.embed_dim, config.model.contrast_dim = 16, 8
    config.model.visual.channels, config.model.audio.channels = [4, 4], [4]
    config.model.fusion.heads = config.model.temporal.heads = config.model.speaker.heads = 2
    config.model.speaker.layers = 1
    config.model.causal = causal
    return config


def field_config(kind: str) -> Config:
    """A tiny model in the manner of the field's."""
    config = kind_config(kind)
    config.data.crop_size, config.data.num_mels = SIDE, MELS
    return config


def base_config() -> Config:
    """The base model's parts, narrow where they may be: ResNet-18, three fusion layers, faces that know each other."""
    config = load_config(CONFIGS / "ava_base.yaml", ["--model.audio.channels=[4,4]", "--model.embed_dim=16"])
    config.data.crop_size, config.data.num_mels = SIDE, MELS
    return config


def tiny_form(config: Config, alignment: bool = True) -> ExportForm:
    torch.manual_seed(0)
    model = build_model(config.model, MELS)
    for parameter in model.head.parameters():  # heads start near zero; real weights make a difference visible
        nn.init.normal_(parameter)
    return ExportForm(model, alignment)


def tiny_checkpoint(path: Path, config: Config) -> ExportForm:
    form = tiny_form(config)
    save_checkpoint(path, form.model, config, {"progress": {}})
    return form


def run_here(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["export", *arguments])
    return run_command(command.main)


def log_mel_by_the_file(sound: np.ndarray, about: dict[str, Any]) -> np.ndarray:
    """The ``(A, M)`` log-mel of sound at its rate from what a file says alone, written out in numpy."""
    said, rate = about["log_mel"], about["sample_rate_hz"]
    size, hop = said["fft_samples"], said["hop_samples"]
    assert (said["window"], said["scale"], said["power"], said["window_samples"]) == (
        "hann, periodic",
        "htk",
        2.0,
        size,
    )
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    padded = np.pad(sound.astype(np.float64), size // 2)
    frames = np.stack([padded[j * hop : j * hop + size] for j in range(len(sound) // hop)])
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    edges = 2595 * np.log10(1 + np.array([said["low_hz"], said["high_hz"]]) / 700)
    points = 700 * (10 ** (np.linspace(*edges, said["num_mels"] + 2) / 2595) - 1)
    bins = np.linspace(0, rate / 2, size // 2 + 1)[:, None]
    rising = (bins - points[:-2]) / (points[1:-1] - points[:-2])
    falling = (points[2:] - bins) / (points[2:] - points[1:-1])
    mels = power @ np.clip(np.minimum(rising, falling), 0, None)
    return (np.log(mels + said["floor"]) - said["mean"]) / said["spread"]


def test_what_the_file_says_of_the_sound_makes_the_log_mel_of_the_model(tmp_path: Path) -> None:
    config = tiny_config()
    (tmp_path / "a.pt").write_bytes(b"weights")
    about = json.loads(command.metadata(config, tmp_path / "a.pt"))
    sound = np.random.default_rng(0).normal(0, 0.1, 640 * 9 + 100).astype(np.float32)
    expected = LogMel(MELS)(torch.from_numpy(sound)).numpy()
    np.testing.assert_allclose(log_mel_by_the_file(sound, about), expected, atol=2e-5)
    assert about["checkpoint_sha256"] == hashlib.sha256(b"weights").hexdigest()
    assert (about["crop_size"], about["region_x1y1x2y2"]) == (SIDE, [0.1, 0.2, 0.9, 1.0])
    assert about["config"]["model"]["embed_dim"] == 16
    assert about["context_frames"] == context_frames(config.model)


EXPORTED = {
    "centred": lambda: tiny_config(),
    "causal": lambda: tiny_config(causal=True),
    "base": base_config,
    "talknet_style": lambda: field_config("talknet_style"),
}


@pytest.mark.parametrize("kind", EXPORTED)
def test_the_exported_way_gives_the_models_numbers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form = tiny_form(EXPORTED[kind]())
    for sizes in (*command.CHECKED, *OTHER_SIZES) if kind != "base" else (SceneSizes(2, 3, 33, masked=True),):
        inputs = sizes.inputs(SIDE, MELS)
        with torch.no_grad():
            expected = form(*inputs)
            with monkeypatch.context() as exported:
                exported.setattr("torch.compiler.is_exporting", lambda: True)
                exported.setattr("torch.compiler.is_compiling", lambda: True)
                found = form(*inputs)
        assert largest_difference(found, expected, inputs[2]) < 1e-5
        assert sizes.frames < 8 or found[0].std() > 1e-3  # numbers that could differ


@pytest.mark.slow
def test_a_torch_program_gives_the_models_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    form = tiny_checkpoint(tmp_path / "tiny.pt", tiny_config(causal=True))
    assert run_here([f"{tmp_path}/tiny.pt", "--to=torch", "--alignment"], monkeypatch) == 0
    assert "largest difference from the model" in capsys.readouterr().out
    extra = {"avfusion.json": ""}
    program = torch.export.load(tmp_path / "tiny.pt2", extra_files=extra).module()
    assert json.loads(extra["avfusion.json"])["config"]["model"]["causal"] is True
    with torch.no_grad():
        for sizes in [*OTHER_SIZES, *(SceneSizes(1, 2, frames) for frames in (1, 31, 32, 33, 51, 64))]:
            inputs = sizes.inputs(SIDE, MELS)
            assert largest_difference(program(*inputs), form(*inputs), inputs[2]) < 1e-5


@pytest.mark.slow
def test_an_onnx_file_gives_the_models_numbers_and_names_its_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    (tmp_path / "config.yaml").write_text("{}")
    form = tiny_checkpoint(tmp_path / "checkpoints" / "best.pt", tiny_config())
    assert run_here([str(tmp_path), "--alignment"], monkeypatch) == 0
    assert "largest difference from the model" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    shapes = {value.name: value.shape for value in (*session.get_inputs(), *session.get_outputs())}
    scenes = ["scenes", "faces", "frames"]
    assert shapes["crops"] == [*scenes, SIDE, SIDE]
    assert shapes["log_mel"] == ["scenes", "4*frames", MELS]
    assert shapes["scores"] == shapes["logits"] == scenes
    assert shapes["alignment"] == ["scenes", "faces", 1, 2, "frames", "4*frames"]
    about = json.loads(session.get_modelmeta().custom_metadata_map["avfusion"])
    assert about["checkpoint_sha256"] == hashlib.sha256((tmp_path / "checkpoints/best.pt").read_bytes()).hexdigest()
    with torch.no_grad():
        for sizes in OTHER_SIZES:
            inputs = sizes.inputs(SIDE, MELS)
            given = {name: tensor.numpy() for name, tensor in zip(command.INPUTS, inputs, strict=True)}
            found = tuple(torch.from_numpy(array) for array in session.run(None, given))
            assert largest_difference(found, form(*inputs), inputs[2]) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "form"), [("base", "torch"), ("talknet_style", "torch"), ("base", "onnx")])
def test_base_and_the_attending_baseline_are_exported(
    kind: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_checkpoint(tmp_path / "model.pt", EXPORTED[kind]())
    assert run_here([f"{tmp_path}/model.pt", f"--to={form}", "--alignment"], monkeypatch) == 0
    assert re.search(r"outputs scores, .*, alignment; largest difference from the model \d", capsys.readouterr().out)


class Wrong(nn.Module):
    """Says that whoever is there speaks."""

    def forward(self, crops: Tensor, log_mel: Tensor, frame_mask: Tensor, audio_mask: Tensor) -> tuple[Tensor, ...]:
        return tuple(frame_mask.float() * (1 + index) for index in range(4))


def test_a_file_that_computes_something_else_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config()
    scenes, faces, frames = Dim("scenes"), Dim("faces"), Dim("frames")
    free = ({0: scenes, 1: faces, 2: frames}, {0: scenes, 1: 4 * frames})
    example = SceneSizes(2, 2, 10).inputs(SIDE, MELS)
    wrong = torch.export.export(Wrong(), example, dynamic_shapes=(*free, *free))
    monkeypatch.setattr(command, "_program", lambda *_: wrong)
    with pytest.raises(AvfusionError, match=r"model.pt2: not written: in 1 scenes of 1 faces and 1 frames it is up to"):
        command.write_torch(tiny_form(config, alignment=False), config, "{}", tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_a_difference_is_looked_for_in_real_frames_only_and_no_number_is_infinitely_far() -> None:
    mask = torch.tensor([[[True, False]]])
    one, far = torch.tensor([[[0.5, 3.0]]]), torch.tensor([[[0.25, -9.0]]])
    assert largest_difference((one,), (far,), mask) == 0.25
    assert largest_difference((one * torch.nan,), (far,), mask) == float("inf")
    weights = torch.zeros(1, 1, 1, 1, 2, 8)
    weights[..., 1, 5] = 0.75
    assert largest_difference((weights,), (torch.zeros_like(weights),), mask) == 0.0
    assert largest_difference((weights,), (torch.zeros_like(weights),), ~mask) == 0.75
    assert largest_difference((weights,), (weights[..., :4],), mask) == float("inf")


def test_what_cannot_be_exported_is_told_in_one_line() -> None:
    def fails() -> None:
        raise RuntimeError("no operator of that name\nand much more")

    with pytest.raises(
        AvfusionError, match=r"cannot be exported: RuntimeError: no operator of that name; AVFUSION_DEBUG"
    ):
        command._told(fails)


def test_without_onnx_the_user_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(AvfusionError, match=r"pip install 'avfusion\[export\]'; --to=torch needs none"):
        command.require_onnx()


def test_alignment_of_a_model_without_attention_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config()
    config.model.fusion.kind = "concat"
    tiny_checkpoint(tmp_path / "tiny.pt", config)
    assert run_here([f"{tmp_path}/tiny.pt", "--to=torch", "--alignment"], monkeypatch) == 2
    assert "no cross-attention" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.pt"]


@pytest.mark.parametrize("form", ["onnx", "torch"])
def test_a_model_with_a_gru_is_refused_in_one_line(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = field_config("light_style")
    save_checkpoint(tmp_path / "light.pt", build_model(config.model, MELS), config, {"progress": {}})
    assert run_here([f"{tmp_path}/light.pt", f"--to={form}"], monkeypatch) == 2
    said = capsys.readouterr().err
    assert "model.kind=light_style has a recurrent layer over the real frames of each track" in said
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["light.pt"]


def test_files_are_found_or_the_command_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("{}")
    alone = tmp_path / "kept.pt"
    alone.write_bytes(b"")
    best = (tmp_path / "checkpoints/best.pt", tmp_path / "model.onnx")
    assert command.find_files(tmp_path, None, None, ".onnx") == best
    assert command.find_files(tmp_path, "last", Path("a.pt2"), ".pt2") == (
        tmp_path / "checkpoints/last.pt",
        Path("a.pt2"),
    )
    assert command.find_files(alone, None, None, ".pt2") == (alone, tmp_path / "kept.pt2")
    for arguments, said in (
        ((alone, "best", None, ".onnx"), "--checkpoint=best goes with the folder of a run"),
        ((tmp_path / "no", None, None, ".onnx"), "no config.yaml there"),
        ((tmp_path, None, Path("a.pb"), ".onnx"), "--out=a.pb: expected a name that ends in .onnx"),
    ):
        with pytest.raises(UsageError, match=said):
            command.find_files(*arguments)
