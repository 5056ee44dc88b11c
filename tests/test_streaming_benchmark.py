"""benchmarks/streaming.py: what it prints is what the stream took and kept."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from types import ModuleType

import pytest

from avfusion.config import load_config
from avfusion.errors import UsageError

PATH = Path(__file__).resolve().parent.parent / "benchmarks" / "streaming.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("streaming_benchmark", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Sleeper:
    """Takes 20 ms a push and keeps a megabyte more after every one."""

    def __init__(self) -> None:
        self.frames = self.samples = self.num_bytes = 0
        self.names: set[str] = set()

    def push(self, frames: list[dict[str, object]], sound: object) -> None:
        self.frames += len(frames)
        self.samples += len(sound)  # type: ignore[arg-type]
        self.num_bytes += 1_000_000
        self.names.update(name for frame in frames for name in frame)
        time.sleep(0.02)


def test_a_row_tells_the_clock_the_processor_and_real_time(benchmark: ModuleType) -> None:
    stream = Sleeper()
    row = benchmark.push_row(stream, load_config(None), faces=2, push_frames=5, seconds=3, finished_ms=1.0).split()
    faces, push_ms, mean, high, processor, share = (float(row[place]) for place in (0, 1, 3, 5, 7, 9))
    assert (faces, push_ms) == (2, 200)
    assert 20 <= mean < 150
    assert mean <= high * 1.5
    assert processor < mean  # it slept
    assert share == pytest.approx(mean / 200, abs=0.01)
    assert stream.frames == 50 + 75
    assert stream.samples == 640 * stream.frames
    assert stream.names == {"face 0", "face 1"}


def test_memory_is_the_most_of_each_minute(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark.time, "sleep", lambda _: None)
    stream = Sleeper()
    lines = benchmark.memory_text(stream, load_config(None), minutes=2).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["1", "60.00"], ["2", "120.00"]]
    assert len(stream.names) > 4  # they come and go


def test_the_model_of_a_run_cannot_be_changed(benchmark: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a run's model is what it is"):
        benchmark.prepared(tmp_path, ["--model.causal=true"])
    with pytest.raises(UsageError, match=r"best\.pt: no checkpoint there"):
        benchmark.prepared(tmp_path, [])


def test_without_a_name_it_takes_the_streaming_configuration(benchmark: ModuleType) -> None:
    model, config = benchmark.prepared(benchmark.ROOT / "configs" / "streaming.yaml", ["--model.lookahead_frames=2"])
    assert (config.model.causal, config.model.lookahead_frames) == (True, 2)
    assert model.visual.ahead_frames == 2
