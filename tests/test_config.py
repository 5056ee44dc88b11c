"""The configuration: what is accepted and equals what, and the exact line that says what is wrong."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from avfusion.config import Config, ConfigError, config_from_dict, load_config, to_flat_dict, to_yaml
from avfusion.errors import UsageError, run_command

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
SHIPPED = sorted(path for path in CONFIGS.glob("**/*.yaml") if "sweeps" not in path.parts)


def error_of(*overrides: str, path: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def changed(*overrides: str, path: Path | None = None) -> dict[str, object]:
    """The flat keys that differ from the defaults."""
    defaults = to_flat_dict(Config())
    return {k: v for k, v in to_flat_dict(load_config(path, overrides)).items() if (v, type(v)) != _typed(defaults[k])}


def _typed(value: object) -> tuple[object, type]:
    return value, type(value)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_given_is_the_defaults() -> None:
    assert load_config(None, []) == Config()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_shipped_yaml_loads(path: Path) -> None:
    config = load_config(path, [])
    assert config_from_dict(dataclasses.asdict(config), "itself") == config


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("--report.offset_accuracy=False", {"report.offset_accuracy": False}),
        ("--report.offset_accuracy=false", {"report.offset_accuracy": False}),
        ("--model.fusion.audio_bypass=True", {"model.fusion.audio_bypass": True}),
        ("--model.fusion.window_s=None", {"model.fusion.window_s": None}),
        ("--model.fusion.window_s=null", {"model.fusion.window_s": None}),
        ("--model.fusion.window_s=1", {"model.fusion.window_s": 1.0}),
        ("--train.lr=3e-4", {"train.lr": 0.0003}),
        ("--train.epochs=2e1", {"train.epochs": 20}),
        ("--model.embed_dim=64.0", {"model.embed_dim": 64}),  # quniform sweeps emit whole numbers this way
        ("--model.audio.channels=[96,96]", {"model.audio.channels": "[96, 96]"}),
        ("--data.region=[0, 0.25, 1, 1]", {"data.region": "[0.0, 0.25, 1.0, 1.0]"}),
        ("--wandb.tags=['a', 'b c']", {"wandb.tags": "['a', 'b c']"}),
        ("--wandb.name=run 3: wide", {"wandb.name": "run 3: wide"}),
        ("--wandb.name='run 3'", {"wandb.name": "run 3"}),
        ("--wandb.name=1e5", {"wandb.name": "1e5"}),
        ("--data.train_split=007", {"data.train_split": "007"}),
        ("--run.dir=C:\\runs\\a=b", {"run.dir": "C:\\runs\\a=b"}),
        ("--data.root=", {}),
        ("--wandb.name=width ${model.embed_dim}", {"wandb.name": "width 128"}),
        ("--model={'fusion': {'heads': 8}, 'dropout': 0}", {"model.fusion.heads": 8, "model.dropout": 0.0}),
    ],
)
def test_overrides_are_read_as_typed(override: str, expected: dict[str, object]) -> None:
    assert changed(override) == expected


def test_the_last_override_wins() -> None:
    assert changed("--train.epochs=3", "--train.epochs=4") == {"train.epochs": 4}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("--model.fusion.haeds=3", "model.fusion.haeds: no such key. Did you mean 'heads'?"),
        ("--model.fusoin.heads=3", "model.fusoin.heads: no such key. Did you mean 'fusion'?"),
        ("--epochs=3", "epochs: no such key. Did you mean 'train.epochs'?"),
        (
            "--model.heads=8",
            "model.heads: no such key. Did you mean 'model.fusion.heads' or 'model.speaker.heads' or"
            " 'model.temporal.heads'?",
        ),
        ("--zzz=3", "zzz: no such key. The keys at the top are run, data, model, train, report, diarization, wandb."),
        ("--train.epochs=many", "train.epochs: expected a whole number, found 'many' (from --train.epochs=many)"),
        ("--train.epochs=1.5", "train.epochs: expected a whole number, found 1.5 (from --train.epochs=1.5)"),
        ("--train.epochs=True", "train.epochs: expected a whole number, found true (from --train.epochs=True)"),
        ("--train.lr=nan", "train.lr: expected a number, found 'nan' (from --train.lr=nan)"),
        ("--train.lr=.inf", "train.lr: expected a number, found inf (from --train.lr=.inf)"),
        ("--train.lr=None", "train.lr: expected a number, found 'None' (from --train.lr=None)"),
        (
            "--report.offset_accuracy=1",
            "report.offset_accuracy: expected true or false, found 1 (from --report.offset_accuracy=1)",
        ),
        ("--wandb.tags=a", "wandb.tags: expected a list of text, found 'a' (from --wandb.tags=a)"),
        (
            "--model.fusion.window_s=wide",
            "model.fusion.window_s: expected a number or null, found 'wide' (from --model.fusion.window_s=wide)",
        ),
        (
            "--data.region=[0, x]",
            "data.region: expected a list of numbers, found [0, 'x'] (from --data.region=[0, x])",
        ),
        ("--train.epochs=0", "train.epochs: expected at least 1, found 0 (from --train.epochs=0)"),
        (
            "--data.num_mels=128",
            "data.num_mels: expected a number from 8 to 80, found 128 (from --data.num_mels=128)",
        ),
        ("--run.seed=-1", "run.seed: expected a number from 0 to 4294967295, found -1 (from --run.seed=-1)"),
        (
            "--data.synthetic.seed=-1",
            "data.synthetic.seed: expected a number from 0 to 4294967295, found -1 (from --data.synthetic.seed=-1)",
        ),
        (
            "--model.visual.temporal_kernel=4",
            "model.visual.temporal_kernel: expected an odd number from 1 to 5, found 4 "
            "(from --model.visual.temporal_kernel=4)",
        ),
        (
            "--model.audio.temporal_kernel=4",
            "model.audio.temporal_kernel: expected an odd number from 1 to 15, found 4 "
            "(from --model.audio.temporal_kernel=4)",
        ),
        (
            "--model.temporal.kernel=4",
            "model.temporal.kernel: expected an odd number of at least 1, found 4 (from --model.temporal.kernel=4)",
        ),
        (
            "--model.temporal.kernel=-1",
            "model.temporal.kernel: expected an odd number of at least 1, found -1 (from --model.temporal.kernel=-1)",
        ),
        (
            "--data.region=[0,0,0.01,1]",
            "data.region: expected at least 0.1 of the picture on each side, found [0.0, 0.0, 0.01, 1.0]",
        ),
        (
            "--model.audio.channels=[8,8,8,8,8,8]",
            "model.audio.channels: 6 stages see 6 audio frames on either side and temporal_kernel 11 sees 5, "
            "together 11; expected at most 10, so that with the 12.5 ms of the spectrogram's window the reach stays "
            "within 120 ms",
        ),
        ("--train.warmup=2", "train.warmup: expected a number from 0 to 1, found 2.0 (from --train.warmup=2)"),
        (
            "--wandb.mode=offlin",
            "wandb.mode: expected one of auto, online, offline, disabled, found 'offlin' (from --wandb.mode=offlin). "
            "Did you mean 'offline'?",
        ),
        (
            "--model.temporal.window_s=0",
            "model.temporal.window_s: expected seconds above 0, or null for no limit, found 0.0",
        ),
        ("--train.epochs", "train.epochs: no value; write it with '=', as --train.epochs=value"),
        ("20", "20: not understood; expected --section.key=value, for example --train.epochs=20"),
    ],
)
def test_a_wrong_override_is_told_in_one_line(override: str, message: str) -> None:
    assert error_of(override) == f"config error: {message}"


@pytest.mark.parametrize("stream", ["fusion", "temporal"])
def test_heads_must_divide_the_width(stream: str) -> None:
    expected = (
        f"config error: model.{stream}.heads: 3 heads do not divide model.embed_dim 40; expected one of 1, 2, 4, 5"
    )
    assert error_of("--model.embed_dim=40", f"--model.{stream}.heads=3").startswith(expected)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--model.embed_dim=20"], "fusion.heads: 4 heads of model.embed_dim 20 are 5 wide"),
        (
            ["--model.embed_dim=20", "--model.fusion.positions=false"],
            "temporal.heads: 4 heads of model.embed_dim 20 are 5 wide",
        ),
        (
            ["--model.embed_dim=9", "--model.fusion.heads=3", "--model.temporal.heads=3"],
            "fusion.heads: 3 heads of model.embed_dim 9 are 3 wide",
        ),
    ],
)
def test_rotary_positions_need_an_even_width_per_head(overrides: list[str], message: str) -> None:
    expected = "make model.embed_dim even" if "embed_dim=9" in overrides[0] else "expected one of 1, 2, 5, 10"
    assert error_of(*overrides) == f"config error: model.{message}, rotary positions need even; {expected}"


@pytest.mark.parametrize(
    "overrides",
    [
        ["--model.fusion.heads=2", "--model.temporal.heads=2"],
        ["--model.fusion.positions=false", "--model.temporal.layers=0"],
        ["--model.fusion.kind=concat", "--model.temporal.heads=10"],
        ["--model.modality=video", "--model.temporal.heads=1"],
    ],
)
def test_what_has_no_odd_rotary_width_is_accepted_and_builds(overrides: list[str]) -> None:
    from avfusion.models import build_model

    config = load_config(None, ["--model.embed_dim=20", *overrides])
    assert build_model(config.model, config.data.num_mels).head.in_features == 20


@pytest.mark.parametrize(("channels", "kernel", "fits"), [(3, 15, True), (4, 15, False), (9, 3, True), (10, 3, False)])
def test_the_sound_encoder_keeps_its_reach(channels: int, kernel: int, fits: bool) -> None:
    overrides = [f"--model.audio.channels={[4] * channels}", f"--model.audio.temporal_kernel={kernel}"]
    if fits:
        assert load_config(None, overrides).model.audio.channels == [4] * channels
    else:
        assert "together 11; expected at most 10" in error_of(*overrides)


def test_a_number_of_400_digits_is_no_number() -> None:
    assert error_of(f"--train.epochs={'9' * 400}").startswith("config error: train.epochs: expected a whole number")


def test_a_tenth_of_the_picture_is_enough() -> None:
    assert changed("--data.region=[0.5, 0.3, 0.6, 0.4]") == {"data.region": "[0.5, 0.3, 0.6, 0.4]"}


@pytest.mark.parametrize(
    "region", ["[0, 0, 1]", "[0.5, 0, 0.5, 1]", "[0, 0, 1.5, 1]", "[-0.1, 0, 1, 1]", "[0, 1, 1, 0]"]
)
def test_a_region_outside_the_picture_is_refused(region: str) -> None:
    assert "data.region: expected x1, y1, x2, y2" in error_of(f"--data.region={region}")


@pytest.mark.parametrize("text", ["${x", "${model.nope}", "${wandb.name}"])
def test_a_broken_reference_is_told_with_its_key(text: str) -> None:
    assert error_of(f"--wandb.name={text}").startswith("config error: wandb.name: cannot make sense of ")


def test_the_printed_line_is_the_message_and_the_exit_code_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(lambda: load_config(None, ["--model.fusion.haeds=3"]) and None)
    assert code == 2
    assert capsys.readouterr().err == "config error: model.fusion.haeds: no such key. Did you mean 'heads'?\n"


def test_other_errors_keep_their_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> None:
        raise UsageError("no such clip")

    assert run_command(body) == 2
    assert capsys.readouterr().err == "error: no such clip\n"


def test_base_files_override_defaults_and_are_overridden(tmp_path: Path) -> None:
    write(tmp_path / "common" / "first.yaml", "train: {epochs: 5, lr: 1e-3}\nmodel:\n  fusion: {heads: 2}\n")
    write(tmp_path / "second.yaml", "base: common/first.yaml\ntrain: {epochs: 6}\nwandb: {tags: [a]}\n")
    third = write(tmp_path / "runs" / "third.yaml", "base: ../second.yaml\nwandb: {tags: [b, c]}\nreport:\n")
    assert changed("--model.fusion.heads=8", path=third) == {
        "train.epochs": 6,
        "train.lr": 1e-3,
        "model.fusion.heads": 8,
        "wandb.tags": "['b', 'c']",
    }


def test_a_circle_of_base_files_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "base: b.yaml\n")
    write(tmp_path / "b.yaml", "base: a.yaml\n")
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    assert error_of(path=a) == f"config error: {a}: base files go in a circle: {a} -> {b} -> {a}; remove one base:"


def test_a_missing_file_lists_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path / "tiny.yaml", "base: tinny.yaml\n")
    write(tmp_path / "base.yml", "")
    wanted = tmp_path / "tinny.yaml"
    expected = "expected a YAML file; YAML files there: base.yml, tiny.yaml"
    assert error_of(path=wanted) == f"config error: {wanted}: no such file; {expected}"
    tiny = tmp_path / "tiny.yaml"
    assert error_of(path=tiny) == f"config error: {wanted}: no such file (base of {tiny}); {expected}"
    assert "is a folder" in error_of(path=tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model:\n  fusion: {haeds: 3}\n", "model.fusion.haeds: no such key in FILE. Did you mean 'heads'?"),
        ("train:\n  epochs: many\n", "train.epochs: expected a whole number, found 'many' (in FILE)"),
        ("train: 3\n", "train: expected a section with the keys encoders, epochs,"),
        ("wandb: {mode: off}\n", "wandb.mode: expected one of auto, online, offline, disabled, found false (in FILE)"),
        ("wandb: {project: 3}\n", "wandb.project: expected text, found 3; put it in quotes (in FILE)"),
        ("base: [a.yaml]\n", "base: expected the path of a YAML file, found ['a.yaml'] (in FILE)"),
        ("train:\n  epochs: 3\n  epochs: 4\n", "FILE: not valid YAML: line 3: found duplicate key epochs"),
        ("train: {epochs: 3\n", "FILE: not valid YAML: line 2: "),
        ("- train\n", "FILE: expected keys and values (section: {key: value}), found a list"),
        ("just words\n", "just words: no such key in FILE. The keys at the top are"),
        ("3\n", "FILE: not valid YAML: "),
    ],
)
def test_a_wrong_file_is_told_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "wrong.yaml", text)
    assert error_of(path=path).startswith("config error: " + message.replace("FILE", str(path)))


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "picture.yaml"
    path.write_bytes(b"\x89PNG\xff\xfe\x00")
    assert error_of(path=path) == f"config error: {path}: not a text file in UTF-8; expected a YAML file"


@pytest.mark.parametrize("text", ["", "# nothing\n", "\ufefftrain:\r\n"])
def test_empty_files_and_a_byte_order_mark_are_fine(tmp_path: Path, text: str) -> None:
    assert load_config(write(tmp_path / "plain.yaml", text)) == Config()


def test_yaml_round_trip_gives_an_equal_config(tmp_path: Path) -> None:
    config = Config()
    config.train.lr = 3e-5
    config.train.loss.temperature = 1 / 3
    config.model.fusion.window_s = None
    config.wandb.name = "réf 3: 'wide' #1 ${not.a.key}"
    config.wandb.project = "1e5"
    config.wandb.tags = ["null", "true", "007", ""]
    config.run.dir = "C:\\runs\\x"
    assert load_config(write(tmp_path / "out.yaml", to_yaml(config))) == config
    assert load_config(write(tmp_path / "default.yaml", to_yaml(Config()))) == Config()


def test_values_of_a_checkpoint_are_checked_like_a_file() -> None:
    config = load_config(None, ["--model.fusion.heads=8", "--wandb.name=a"])
    assert config_from_dict(dataclasses.asdict(config), "last.pt") == config
    assert config_from_dict({"model.fusion.heads": 8, "wandb": {"name": "a"}}, "last.pt") == config
    with pytest.raises(ConfigError, match=r"model\.haeds: no such key in last\.pt"):
        config_from_dict({"model": {"haeds": 3}}, "last.pt")


def test_configs_share_no_lists() -> None:
    load_config(None).model.audio.channels.append(1)
    assert load_config(None) == Config()


def test_importing_the_configuration_leaves_omegaconf_out() -> None:
    """The models room imports this file and promises to need torch and einops only."""
    probe = "import sys, avfusion.config; sys.exit('omegaconf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False, cwd=CONFIGS.parent).returncode == 0


@pytest.mark.parametrize("lags", ["[5, -1]", "[0]", "[-26, 0]", "[0, 40]"])
def test_lags_that_are_none_are_refused(lags: str) -> None:
    assert "train.loss.lag_frames: expected the earliest and the latest" in error_of(f"--train.loss.lag_frames={lags}")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["--train.loss.contrast_hz=50"],
            "train.loss.contrast_hz: expected one of 25, 100, found 50 (from --train.loss.contrast_hz=50)",
        ),
        (
            ["--train.loss.contrast_hz=fine"],
            "train.loss.contrast_hz: expected one of 25, 100, found 'fine' (from --train.loss.contrast_hz=fine)",
        ),
        (
            ["--train.loss.sync_shifts=8"],
            "train.loss.sync_shifts: expected a number from 9 to 100, found 8 (from --train.loss.sync_shifts=8)",
        ),
        (
            ["--train.loss.guided_steps=0"],
            "train.loss.guided_steps: expected at least 1, found 0 (from --train.loss.guided_steps=0)",
        ),
        (
            ["--train.loss.null=0.1", "--model.fusion.null_key=false"],
            "train.loss.null: 0.1 weighs a loss on the attention, but model.fusion.null_key is false; set it to 0",
        ),
        (
            ["--train.loss.null=0.1", "--model.fusion.kind=concat"],
            "train.loss.null: 0.1 weighs a loss on the attention, but model.fusion.kind concat has no attention; set it"
            " to 0",
        ),
        (
            ["--train.loss.guided=1", "--model.fusion.kind=concat"],
            "train.loss.guided: 1.0 weighs a loss on the attention, but model.fusion.kind concat has no attention; set"
            " it to 0",
        ),
        (
            ["--train.loss.guided=1", "--model.modality=video"],
            "train.loss.guided: 1.0 weighs a loss on the attention, but model.modality video has no attention to sound;"
            " set it to 0",
        ),
        (
            ["--train.loss.guided=1", "--train.loss.guided_heads=5"],
            "train.loss.guided_heads: expected at most model.fusion.heads 4, found 5",
        ),
    ],
)
def test_losses_that_cannot_be_are_refused(overrides: list[str], message: str) -> None:
    assert error_of(*overrides) == f"config error: {message}"


@pytest.mark.parametrize(
    "overrides",
    [
        ["--train.loss.guided=1", "--model.fusion.null_key=false", "--train.loss.guided_heads=4"],
        ["--train.loss.null=0", "--train.loss.guided=0", "--model.fusion.kind=concat"],
        ["--train.loss.null=1", "--train.loss.guided=1", "--train.loss.sync=1", "--train.loss.contrast_hz=100"],
    ],
)
def test_losses_that_can_be_are_accepted(overrides: list[str]) -> None:
    assert changed(*overrides)
