"""Synthetic talkers are made before they are wanted, in several processes; other datasets are read as work goes on."""

from __future__ import annotations

from tqdm import tqdm

from avfusion.data.examples import Examples


def render_ahead(examples: Examples) -> None:
    """Makes the tracks of synthetic talkers and keeps them in memory as far as there is room; else does nothing.

    Args:
        examples: read in this process (``data.workers`` of 0); workers make what they need themselves.
    """
    from avfusion.data.synthetic import SyntheticDataset
    from avfusion.data.synthetic.parallel import read_many

    if isinstance(examples.dataset, SyntheticDataset) and examples.config.workers == 0:
        clips = read_many(examples.dataset, range(len(examples)))
        bar = tqdm(clips, desc=f"rendering {examples.dataset.split}", total=len(examples), leave=False, disable=None)
        examples.preload(bar)
