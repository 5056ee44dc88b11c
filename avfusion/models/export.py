"""Writes a trained model as one ONNX file, or as a torch.export program, that needs nothing of this package.

python -m avfusion.models.export RUN [--to=onnx|torch] [--checkpoint=best|last] [--out=FILE] [--alignment]

RUN is a run folder of train.py, or a checkpoint. The file is free in the number of scenes B, faces S and video frames
T (25 a second). It takes
  crops       (B, S, T, Y, X) uint8     grey face crops, cut to the region and resized to the crop size
  log_mel     (B, 4 T, M)     float32   the sound, 100 frames a second, scaled as the file's metadata says
  frame_mask  (B, S, T)       bool      True where the face is there
  audio_mask  (B, 4 T)        bool      True where the sound is real
and gives scores (B, S, T), the probability that the face is the one heard, and logits, audio_logits (from the sound
alone) and video_logits (from the picture alone) of that shape. --alignment adds the weights of every fusion layer and
head, (B, S, L, H, T, 4 T): their size grows with the square of the length, so give it short pieces.

The spectrogram stays outside. What it needs is in the file's metadata, as JSON under "avfusion" (ONNX: metadata_props;
torch: the extra file avfusion.json): rates, mel bins, window and scale of the log-mel, crop size and region, the whole
configuration, the checkpoint's sha256.

The whole of T goes through the network at once, and memory grows with it: pieces that overlap by "context_frames" on
both sides give the same scores. What is written is run (by onnxruntime, or as loaded) on random scenes of several
sizes, masked ones too, and is kept only where no number is more than 1e-4 away from the model's.
Needs pip install 'avfusion[export]' for ONNX.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

import avfusion
from avfusion.checkpoint import load_model
from avfusion.clock import AUDIO_HZ, SAMPLE_RATE, VIDEO_HZ
from avfusion.config import Config
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from avfusion.files import whole_file
from avfusion.media.audio import LOG_FLOOR, LOG_MEAN, LOG_SPREAD, LogMel
from avfusion.models.detector import context_frames
from avfusion.models.export_form import INPUTS, ExportForm, SceneSizes, export_program, largest_difference
from avfusion.models.head_edit import cross_attentions

TOLERANCE = 1e-4
METADATA = "avfusion"
SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
CHECKED = (
    SceneSizes(1, 1, 1),
    SceneSizes(1, 1, 7),
    SceneSizes(2, 3, 33, masked=True),
    SceneSizes(1, 2, 130),
    SceneSizes(3, 1, 64, masked=True),
)

# Takes the inputs, gives the outputs.
Run = Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]


def main() -> None:
    """Reads the command line, writes the file, prints what it is and how near."""
    parser = CommandParser(
        prog="python -m avfusion.models.export", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run that train.py made, or a checkpoint")
    parser.add_argument("--to", choices=list(SUFFIXES), default="onnx", help="form of the file (default: onnx)")
    parser.add_argument("--checkpoint", choices=["best", "last"], help="which checkpoint of a run (default: best)")
    parser.add_argument("--out", type=Path, help="where to (default: RUN/model.onnx or .pt2)")
    parser.add_argument("--alignment", action="store_true", help="also give the attention's weights")
    options = parser.parse_args()
    checkpoint, out = find_files(options.run, options.checkpoint, options.out, SUFFIXES[options.to])
    if options.to == "onnx":
        require_onnx()
    model, config, _ = load_model(checkpoint)
    refuse_recurrent(model, config)
    if options.alignment and not cross_attentions(model):
        raise UsageError("--alignment: this model has no cross-attention, so it has no weights to give")
    form = ExportForm(model, options.alignment)
    write = write_onnx if options.to == "onnx" else write_torch
    difference = write(form, config, metadata(config, checkpoint), out)
    sizes = ", ".join(f"{s.scenes} x {s.faces} x {s.frames}" for s in CHECKED)
    print(
        f"{out}: {out.stat().st_size / 1e6:.1f} MB; outputs {', '.join(form.outputs)}; largest difference from the"
        f" model {difference:.1e} (limit {TOLERANCE:.0e}) over scenes x faces x frames of {sizes}"
    )


def find_files(run: Path, which: str | None, out: Path | None, suffix: str) -> tuple[Path, Path]:
    """The checkpoint, and the file to write.

    Raises:
        UsageError: there is no run, or a checkpoint is named beside a checkpoint, or the file cannot be told.
    """
    if run.is_file():
        if which is not None:
            raise UsageError(f"--checkpoint={which} goes with the folder of a run; {run} is a file")
        checkpoint, default = run, run.with_suffix(suffix)
    elif (run / "config.yaml").is_file():
        checkpoint, default = run / "checkpoints" / f"{which or 'best'}.pt", run / f"model{suffix}"
    else:
        raise UsageError(f"{run}: no config.yaml there; expected a folder that train.py made, or a checkpoint")
    out = out or default
    if out.suffix != suffix:
        raise UsageError(f"--out={out}: expected a name that ends in {suffix}")
    if out.is_dir():
        raise UsageError(f"--out={out}: is a folder; expected the name of a file")
    return checkpoint, out


def refuse_recurrent(model: nn.Module, config: Config) -> None:
    """Refuses models that go through a track frame by frame.

    Raises:
        UsageError: the model is one.
    """
    if any(isinstance(module, nn.RNNBase) for module in model.modules()):
        raise UsageError(
            f"model.kind={config.model.kind} has a recurrent layer over the real frames of each track, and a graph that"
            " is free in their number cannot hold it; export a run of another kind (avfusion, talknet_style)"
        )


def require_onnx() -> None:
    """Looks for what writes and runs ONNX.

    Raises:
        AvfusionError: it cannot be imported.
    """
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise AvfusionError(
            f"ONNX files are written with onnx, onnxscript and onnxruntime, which cannot be imported ({error}): pip"
            " install 'avfusion[export]'; --to=torch needs none of them"
        ) from error


def metadata(config: Config, checkpoint: Path) -> str:
    """All that a user of the file has to know, as JSON."""
    log_mel = LogMel(config.data.num_mels).mel
    bank, window = log_mel.mel_scale, log_mel.spectrogram
    about = {
        "made_by": f"avfusion {avfusion.__version__}",
        "checkpoint_sha256": hashlib.sha256(checkpoint.read_bytes()).hexdigest(),
        "video_hz": VIDEO_HZ,
        "crop_size": config.data.crop_size,
        "region_x1y1x2y2": list(config.data.region),
        "sample_rate_hz": SAMPLE_RATE,
        "log_mel": {
            "frames_hz": AUDIO_HZ,
            "num_mels": config.data.num_mels,
            "low_hz": bank.f_min,
            "high_hz": bank.f_max,
            "scale": bank.mel_scale,
            "window": "hann, periodic",
            "window_samples": window.win_length,
            "fft_samples": window.n_fft,
            "hop_samples": window.hop_length,
            "power": window.power,
            "centre": "frame j at sample j * hop_samples, zeros before and after the sound; the last frame is left out",
            "formula": "(ln(power_in_mel_band + floor) - mean) / spread",
            "floor": LOG_FLOOR,
            "mean": LOG_MEAN,
            "spread": LOG_SPREAD,
        },
        "context_frames": context_frames(config.model),
        "config": asdict(config),
    }
    return json.dumps(about)


def write_onnx(form: ExportForm, config: Config, about: str, out: Path) -> float:
    """Writes an ONNX file and runs it.

    Returns:
        The largest difference from the model.

    Raises:
        AvfusionError: the model has no such form, or what was written computes something else; no file is left then.
    """
    program = _program(form, config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about itself
        onnx = _told(
            lambda: torch.onnx.export(
                program, input_names=list(INPUTS), output_names=list(form.outputs), dynamo=True, verbose=False
            )
        )
    _name_sizes(onnx.model)
    onnx.model.metadata_props[METADATA] = about
    with whole_file(out) as part:
        onnx.save(part, external_data=False)
        return _checked(_onnx_runner(part), form, config, out)


def write_torch(form: ExportForm, config: Config, about: str, out: Path) -> float:
    """Writes a torch.export program and runs it; as :func:`write_onnx`."""
    program = _program(form, config)
    with whole_file(out) as part:
        with part.open("wb") as file:
            written = io.BytesIO()  # torch wants names of its own ending for paths
            torch.export.save(program, written, extra_files={f"{METADATA}.json": about})
            file.write(written.getvalue())
        loaded = torch.export.load(io.BytesIO(part.read_bytes())).module()
        return _checked(lambda inputs: loaded(*inputs), form, config, out)


def _program(form: ExportForm, config: Config) -> ExportedProgram:
    program: ExportedProgram = _told(lambda: export_program(form, config.data.crop_size, config.data.num_mels))
    return program


def _told(export: Callable[[], Any]) -> Any:
    """What ``export`` gives; its many kinds of failure in one line."""
    try:
        return export()
    except Exception as error:  # torch raises whatever the operator at fault raises
        why = str(error).strip().splitlines()
        raise AvfusionError(
            f"this model cannot be exported: {type(error).__name__}: {why[0] if why else ''}; AVFUSION_DEBUG=1 shows"
            " where"
        ) from error


def _name_sizes(model: Any) -> None:
    """Calls the free sizes of an ONNX graph ``scenes``, ``faces`` and ``frames``, as they are in ``crops``."""
    crops = next(value for value in model.graph.inputs if value.name == "crops")
    names = dict(zip((str(size.value) for size in crops.shape[:3]), ("scenes", "faces", "frames"), strict=True))
    for value in (*model.graph.inputs, *model.graph.outputs):
        for axis, size in enumerate(value.shape):
            name = str(getattr(size, "value", size))
            for symbol, plain in names.items():  # the sound's is a multiple, 4*s11
                if name == symbol or name.endswith(f"*{symbol}"):
                    value.shape[axis] = name.removesuffix(symbol) + plain


def _onnx_runner(path: Path) -> Run:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        given = {name: tensor.numpy() for name, tensor in zip(INPUTS, inputs, strict=True)}
        return tuple(torch.from_numpy(array) for array in session.run(None, given))

    return run


@torch.no_grad()
def _checked(run: Run, form: ExportForm, config: Config, out: Path, cases: Sequence[SceneSizes] = CHECKED) -> float:
    """Runs what was written beside the model; the largest difference."""
    largest = 0.0
    for sizes in cases:
        inputs = sizes.inputs(config.data.crop_size, config.data.num_mels)
        difference = largest_difference(run(inputs), form(*inputs), frame_mask=inputs[2])
        if not difference <= TOLERANCE:
            raise AvfusionError(
                f"{out}: not written: in {sizes.scenes} scenes of {sizes.faces} faces and {sizes.frames} frames it is"
                f" up to {difference:.1e} away from the model, at most {TOLERANCE:.0e} is expected; please report this"
                " with the versions of torch, onnxscript and onnxruntime"
            )
        largest = max(largest, difference)
    return largest


if __name__ == "__main__":
    sys.exit(run_command(main))
