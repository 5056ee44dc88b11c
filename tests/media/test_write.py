"""Facts about the crops' encoder: the same frames give the same file, whatever the machine is doing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from avfusion.media.write import write_crops


def test_the_same_frames_give_the_same_file_every_time(tmp_path: Path) -> None:
    # A moving pattern with a mouth that opens: without x264's cpu-independent, 150 encodings gave 12 different files.
    rows, columns = np.mgrid[:48, :48].astype(float)
    blob = np.exp(-((rows - 30) ** 2 + (columns - 24) ** 2) / 40)
    waves = [90 + 30 * np.sin((columns + 0.3 * i) / 5) * np.sin(rows / 4) for i in range(60)]
    frames = [wave + (60 if i % 9 < 4 else 0) * blob for i, wave in enumerate(waves)]
    crops = np.clip(np.stack(frames), 0, 255).astype(np.uint8)
    contents = set()
    for number in range(25):
        write_crops(tmp_path / f"{number}.mp4", crops)
        contents.add((tmp_path / f"{number}.mp4").read_bytes())
    assert len(contents) == 1
