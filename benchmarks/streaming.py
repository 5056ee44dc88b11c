"""What streaming costs: how long a push takes, how far behind its picture a score is, and whether memory stays.

    python benchmarks/streaming.py [RUN or configs/NAME.yaml] [--seconds=20] [--minutes=10] [--section.key=value ...]

Without a name it takes configs/streaming.yaml; a file is measured with untrained weights, a run with its best. Streams
random pictures and noise. Printed, all from one run on one machine:

    memory      what the stream keeps, and the peak of the process, over minutes in which faces come and go
    pushes      for 1, 2 and 4 faces and pushes of 40, 200 and 1000 ms: mean and 95 % by the wall clock, seconds of the
                processor, and as a share of real time by the clock (below 1 the stream is kept up with); ``finished``
                is the processor's time of a frame as a multiple of that in a track of 10 s which is scored whole
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.checkpoint import load_model
from avfusion.clock import SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.config import Config, load_config
from avfusion.errors import CommandParser, UsageError, run_command, split_overrides
from avfusion.inference import Stream
from avfusion.inference.streaming import Frame
from avfusion.media.audio import LogMel
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.scoring import pick_device

ROOT = Path(__file__).resolve().parent.parent
WARM_UP_FRAMES = 2 * VIDEO_HZ
VISIT_S = 8  # how long a face stays in the measurement of memory


def main() -> None:
    """Measures and prints."""
    overrides, rest = split_overrides(sys.argv[1:])
    parser = CommandParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("model", type=Path, nargs="?", default=ROOT / "configs" / "streaming.yaml")
    parser.add_argument("--seconds", type=int, default=20, help="streamed for each row of pushes (default: 20)")
    parser.add_argument("--minutes", type=int, default=10, help="streamed for memory; 0: not at all (default: 10)")
    options: argparse.Namespace = parser.parse_args(rest)
    if options.seconds < 3 or options.minutes < 0:
        raise UsageError("expected --seconds of at least 3 and --minutes of at least 0")
    model, config = prepared(options.model, overrides)
    device = pick_device(config.run.device)
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    kind = f"causal, {config.model.lookahead_frames} frames ahead" if config.model.causal else "not causal"
    stream = Stream(model, config, device)
    side, threads, wait_ms = config.data.crop_size, torch.get_num_threads(), stream.latency().look_ahead_ms
    print(f"{options.model.stem}: {kind}, crops of {side} pixels, {device}, {threads} threads")
    print(f"a score comes {wait_ms} ms after its picture, and the time of its push")
    if options.minutes:  # first, or the peak would be that of the finished tracks
        print(memory_text(stream, config, options.minutes))
    print(f"{'faces':>5} {'push':>8} {'mean':>9} {'95 %':>9} {'processor':>10} {'real time':>10} {'finished':>9}")
    for faces in (1, 2, 4):
        finished_ms = finished_frame_ms(model, config, device, faces)
        for push_frames in (1, 5, 25):
            print(push_row(Stream(model, config, device), config, faces, push_frames, options.seconds, finished_ms))


def prepared(path: Path, overrides: list[str]) -> tuple[ActiveSpeakerDetector, Config]:
    """The best model of a run, or an untrained one of a configuration."""
    if path.is_dir():
        if overrides:
            raise UsageError(f"{overrides[0]}: a run's model is what it is; give a YAML file to change keys")
        model, config, _ = load_model(path / "checkpoints" / "best.pt")
        return model, config
    config = load_config(path, overrides)
    torch.manual_seed(config.run.seed)
    return build_model(config.model, config.data.num_mels), config


def pushes(
    config: Config, names: tuple[str, ...], push_frames: int
) -> Iterator[tuple[list[Frame], NDArray[np.float32]]]:
    """Random pictures of these faces, and noise, without end."""
    rng = np.random.default_rng(0)
    side = config.data.crop_size
    while True:
        pictures = rng.integers(0, 256, (push_frames, len(names), side, side), dtype=np.uint8)
        frames: list[Frame] = [dict(zip(names, of_frame, strict=True)) for of_frame in pictures]
        yield frames, (0.1 * rng.standard_normal(push_frames * SAMPLES_PER_VIDEO_FRAME)).astype(np.float32)


def push_row(stream: Stream, config: Config, faces: int, push_frames: int, seconds: int, finished_ms: float) -> str:
    """A row of the table: pushes once the faces have been there for a while."""
    names = tuple(f"face {n}" for n in range(faces))
    source = pushes(config, names, push_frames)
    for _ in range(WARM_UP_FRAMES // push_frames):
        stream.push(*next(source))
    took_ms, processor_ms = [], []
    for _ in range(seconds * VIDEO_HZ // push_frames):
        frames, sound = next(source)
        began, began_processor = time.perf_counter(), time.process_time()
        stream.push(frames, sound)
        took_ms.append(1000 * (time.perf_counter() - began))
        processor_ms.append(1000 * (time.process_time() - began_processor))
    mean, processor, push_ms = float(np.mean(took_ms)), float(np.mean(processor_ms)), 1000 * push_frames / VIDEO_HZ
    return (
        f"{faces:5} {push_ms:5.0f} ms {mean:6.1f} ms {np.percentile(took_ms, 95):6.1f} ms {processor:7.1f} ms"
        f" {mean / push_ms:10.2f} {processor / push_frames / finished_ms:7.1f} x"
    )


@torch.inference_mode()
def finished_frame_ms(model: ActiveSpeakerDetector, config: Config, device: torch.device, faces: int) -> float:
    """Milliseconds of the processor a frame where a scene of 10 s is scored at once; the median of some."""
    frames = 10 * VIDEO_HZ
    side = config.data.crop_size
    crops = torch.randint(0, 256, (1, faces, frames, side, side), dtype=torch.uint8)
    sound = 0.1 * torch.randn(1, frames * SAMPLES_PER_VIDEO_FRAME)
    to_log_mel = LogMel(config.data.num_mels)
    took_ms = []
    for _ in range(5):
        began = time.process_time()
        model(crops.to(device), to_log_mel(sound).to(device)).logits.cpu()
        took_ms.append(1000 * (time.process_time() - began) / frames)
    return float(np.median(took_ms[1:]))


def memory_text(stream: Stream, config: Config, minutes: int) -> str:
    """What is kept after each minute, pushed by the second, two faces at a time, each of which stays 8 s."""
    lines = [f"{'minute':>6} {'kept by the stream':>20} {'peak of the process':>20}"]
    most = 0
    for second in tqdm(range(60 * minutes), desc="memory", leave=False, disable=None):
        turn = second // (VISIT_S // 2)
        names = (f"face {turn // 2 * 2 % 7}", f"face {(turn + 1) // 2 * 2 % 7 + 7}")
        stream.push(*next(pushes(config, names, VIDEO_HZ)))
        most = max(most, stream.num_bytes)
        if (second + 1) % 60 == 0:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
            lines.append(f"{(second + 1) // 60:6} {most / 1e6:17.2f} MB {peak:17.1f} MB")
            most = 0
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(run_command(main))
