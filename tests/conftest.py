"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real clips and known faults, kept beside the repository (or named by AVFUSION_SHARED)."""
    folder = Path(os.environ.get("AVFUSION_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "cases").is_dir():
        message = f"no shared test data at {folder}: set AVFUSION_SHARED to the folder that holds cases/ and clips/"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def small_dataset() -> Callable[..., Path]:
    """Writes a small prepared dataset without a fault: tracks of 30 frames that speak in their second half."""

    def write(root: Path, counts: Mapping[str, int] | None = None, labelled: bool = True, frames: int = 30) -> Path:
        from avfusion.data.prepared_tables import TrackRow
        from avfusion.data.prepared_writer import PreparedWriter, SceneRecord

        writer = PreparedWriter(root, "small", "python -m test", crop_size=32, settings={})
        down, right = np.mgrid[:32, :32]
        for split, count in (counts or {"train": 8, "val": 4}).items():
            for number in range(count):
                video_id = f"{split}{number}"
                rng = np.random.default_rng([number, len(split)])
                phase = right[None] / 5 + np.arange(frames)[:, None, None] / 4 + number + len(split) / 10
                crops = (120 + 80 * np.sin(phase) * np.cos(down[None] / 6)).astype(np.uint8)
                row = TrackRow(
                    split=split,
                    video_id=video_id,
                    entity_id=f"{video_id}:1",
                    start_s=0.0,
                    num_frames=frames,
                    crops=writer.crops(split, f"{video_id}:1", crops),
                    audio=writer.audio(split, video_id, rng.normal(0, 0.05, 640 * frames).astype(np.float32)),
                    labelled=labelled,
                )
                speaking = (np.arange(frames) >= frames // 2) & labelled
                boxes = np.tile(np.array([0.1, 0.2, 0.3, 0.4], np.float32), (frames, 1))
                writer.add_scene(video_id, SceneRecord([row], [speaking], [boxes], {}))
        writer.finish()
        return root

    return write
