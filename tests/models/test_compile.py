"""torch.compile, free in scenes, faces and frames: the model's numbers at every size, from fewer graphs than sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from avfusion.config import Config
from avfusion.models.export_form import SceneSizes, largest_difference
from tests.models.test_export import MELS, base_config, tiny_config, tiny_form

SIZES = [SceneSizes(2, 2, 40), SceneSizes(3, 3, 67, masked=True), SceneSizes(2, 4, 130, masked=True)]


@pytest.mark.slow
@pytest.mark.parametrize("config_of", [tiny_config, base_config], ids=["small", "base"])
def test_two_whole_graphs_serve_every_size(config_of: Callable[[], Config]) -> None:
    """Traced without a break and run by torch itself: to wait for inductor's code would take minutes more."""
    config = config_of()
    torch._dynamo.reset()
    form = tiny_form(config, alignment=False)
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(form, dynamic=True, fullgraph=True, backend=counter)
    with torch.no_grad():
        for sizes in SIZES:
            inputs = sizes.inputs(config.data.crop_size, MELS)
            assert largest_difference(compiled(*inputs), form(*inputs), inputs[2]) < 1e-5
    assert 1 <= counter.frame_count <= 2
