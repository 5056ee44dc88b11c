"""How fast synthetic talkers are made, on one core: seconds of scene per second of work, sound and one face.

    python benchmarks/synthetic.py [--scenes=104]

Prints the share of each part. Run it on a quiet machine: the figure is a time, the shares are ratios in one run.
"""

from __future__ import annotations

import argparse
import time

from avfusion.data.synthetic import SyntheticDataset
from avfusion.data.synthetic.picture import render_face
from avfusion.data.synthetic.sound import mix, render_voices
from avfusion.errors import CommandParser, UsageError, run_command


def main() -> None:
    """Times planning, sound and picture of the first face of every scene at three crop sizes."""
    parser = CommandParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--scenes", type=int, default=104, help="how many (default: 104, four of every block of roles)")
    options: argparse.Namespace = parser.parse_args()
    if options.scenes < 1:
        raise UsageError(f"--scenes={options.scenes}: expected at least 1")
    for crop_size in (48, 55, 112):
        dataset = SyntheticDataset("benchmark", options.scenes, crop_size=crop_size)
        spent = {"plan": 0.0, "sound": 0.0, "picture": 0.0}
        for number in range(options.scenes):
            began = time.process_time()
            scene = dataset.scene(number)
            planned = time.process_time()
            rng = dataset.sound_rng(number)
            mix(rng, scene, render_voices(rng, scene))
            heard = time.process_time()
            face = scene.faces[0]
            render_face(dataset.picture_rng(number, 0), face.face, face.head, face.mouth, face.camera, crop_size)
            for part, seconds in zip(
                spent, (planned - began, heard - planned, time.process_time() - heard), strict=True
            ):
                spent[part] += seconds
        total = sum(spent.values())
        shares = ", ".join(f"{part} {1000 * seconds / options.scenes:.1f} ms" for part, seconds in spent.items())
        print(
            f"{crop_size} px: {options.scenes * scene.scene_s / total:.0f} x real time of one core; a scene: {shares}"
        )


if __name__ == "__main__":
    raise SystemExit(run_command(main))
