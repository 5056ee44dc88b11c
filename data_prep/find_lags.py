"""Finds by how much each talker's sound comes after the picture, as a model hears it.

    python -m data_prep.find_lags CLIPS --out=lags.csv [--checkpoint=FILE] [--corpora=a,b]

CLIPS is a folder of talking faces as data_prep.compose takes it. Cameras and corpora differ by a frame or two, the same
in all clips of a talker, and a model that tells a frame apart takes such clips for ones in which nobody speaks. The lag
is looked for as ``python -m avfusion.inference`` does in a film: over all stretches of all clips of a talker, within
200 ms, and 0 where there is too little evidence. Nobody's labels are looked at. compose, benchmarks/own_voice.py and
benchmarks/side_by_side.py take the table by --lags.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from avfusion.faces.crop import CROP_SCALE
from avfusion.files import whole_text_file
from avfusion.inference.film_lag import FilmLag, find_lag
from avfusion.inference.trained import open_trained
from avfusion.scoring import pick_device
from data_prep.clips_in_memory import Scenes
from data_prep.source_clips import ClipDecoder, ClipEntry, DecodedClip, list_clips

COLUMNS = ("talker", "lag_ms", "found", "stretches", "evidence")
CROP_SIZE = 112


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(lambda: find_lags(parse_arguments(arguments)))


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        prog="python -m data_prep.find_lags",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("clips", type=Path, metavar="CLIPS", help="folder with clips.csv and boxes.csv")
    parser.add_argument("--out", type=Path, required=True, metavar="CSV", help="where to write the table")
    parser.add_argument("--checkpoint", type=Path, help="of train.py (default: the released model)")
    parser.add_argument("--corpora", help="comma-separated (default: all)")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "mps"), help="(default: auto)")
    return parser.parse_args(arguments)


def find_lags(options: argparse.Namespace) -> None:
    """Looks at one talker after another and writes the table.

    Raises:
        UsageError: no clips, or none of a corpus that is asked for.
        AvfusionError: the checkpoint cannot be read.
    """
    entries = _of_corpora(list_clips(options.clips)[0], options.corpora)
    if options.out.is_dir():
        raise UsageError(f"--out={options.out}: a folder; expected the name of a table")
    if not options.out.parent.is_dir():
        raise UsageError(f"--out={options.out}: no folder {options.out.parent}; make it first")
    device = pick_device(options.device, option="device")
    trained = open_trained(options.checkpoint, device)
    decoder = ClipDecoder(CROP_SIZE, CROP_SCALE, voices=False)
    rows: dict[str, FilmLag] = {}
    by_talker = {talker: [one for one in entries if one.talker == talker] for talker in {e.talker for e in entries}}
    for talker, clips in tqdm(sorted(by_talker.items()), desc="talkers", unit="talker", disable=None):
        films = Scenes(talker)
        for number, clip in enumerate(_with_sound(decoder, clips)):
            films.add(f"{talker}/{number}", clip.crops, clip.boxes_xyxy, clip.audio, clip.speaking)
        rows[talker] = find_lag(trained.model, films, trained.config, device)
    with whole_text_file(options.out) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for talker, lag in rows.items():
            facts = lag.facts()
            cells = [talker, facts["ms"], int(lag.found), lag.stretches, facts["evidence"]]
            table.writerow(cells)
            state = "" if lag.found else "  (too little evidence)"
            sure = f"{lag.stretches:4d} stretches  {lag.evidence:6.1f} nats"
            print(f"{talker:28} {facts['ms']:+5d} ms  {sure}{state}")
    print(f"  {options.out}")


def _with_sound(decoder: ClipDecoder, clips: Sequence[ClipEntry]) -> Iterator[DecodedClip]:
    """Those that can be heard; one that cannot be read is named, and its talker's others are listened to."""
    for entry in clips:
        try:
            clip = decoder.decode(entry)
        except AvfusionError as error:
            tqdm.write(f"left out {entry.clip_id}: {error}", file=sys.stderr)
            continue
        if clip.has_sound:
            yield clip


def _of_corpora(entries: Sequence[ClipEntry], corpora: str | None) -> list[ClipEntry]:
    known = sorted({entry.corpus for entry in entries})
    wanted = corpora.split(",") if corpora else known
    for corpus in wanted:
        if corpus not in known:
            raise UsageError(f"--corpora names {corpus!r}, which no clip has; expected some of {', '.join(known)}")
    return [entry for entry in entries if entry.corpus in wanted]


if __name__ == "__main__":
    sys.exit(main())
