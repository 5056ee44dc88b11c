"""Opens the dataset that a configuration names."""

from __future__ import annotations

from pathlib import Path

from avfusion.config import DataConfig
from avfusion.data.clips import ClipDataset
from avfusion.errors import UsageError


def open_dataset(data: DataConfig, split: str) -> ClipDataset:
    """Opens one split and checks that its files are there.

    Args:
        data: the ``data`` section.
        split: ``train``, ``val``, ``test``.

    Raises:
        UsageError: no dataset is named or none lies there.
        AvfusionError: the dataset is not whole (missing or short crops or sound).
    """
    if data.format == "synthetic":
        from avfusion.data.synthetic import SyntheticDataset

        synthetic = data.synthetic
        scenes = {
            "test": synthetic.test_scenes,
            data.val_split: synthetic.val_scenes,
            data.train_split: synthetic.train_scenes,
        }
        if len(scenes) < 3:
            raise UsageError(
                f"data.train_split={data.train_split}, data.val_split={data.val_split}: expected two different names,"
                " and not 'test', which is the third split of synthetic talkers"
            )
        if split not in scenes:
            raise UsageError(f"synthetic talkers have no split {split!r}; choose one of {', '.join(reversed(scenes))}")
        x1, y1, x2, y2 = data.region
        return SyntheticDataset(
            split,
            scenes[split],
            synthetic.seed,
            crop_size=round(data.crop_size / max(x2 - x1, y2 - y1)),  # the region then has the model's size
            scene_s=synthetic.scene_s,
            espeak=synthetic.espeak,
        )

    from avfusion.data.prepared import PreparedDataset

    if data.root is None:
        raise UsageError(
            "data.format=prepared needs the folder of a prepared dataset; give it as --data.root=FOLDER"
            " (python -m data_prep.compose --help makes one)"
        )
    return PreparedDataset(Path(data.root), split)
