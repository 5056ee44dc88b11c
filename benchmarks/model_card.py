"""Fills the tables of a model card from the released weights and the files of figures, and from nothing else.

python benchmarks/model_card.py FIGURES [--weights=FILE] [--into=docs/model_card.md]

FIGURES is a folder of what the measuring commands wrote:
  own_voice.json      python benchmarks/own_voice.py CLIPS --out=FIGURES/own_voice.json
  own_voice_each.json the same with --lags=each
  own_voice_lags.json the same with --lags=lags.csv, which python -m data_prep.find_lags CLIPS --out=lags.csv makes
  side_by_side.json   python benchmarks/side_by_side.py CLIPS --lags=lags.csv --out=FIGURES/side_by_side.json
  report.json         python eval.py RUN --data.root=DATA --split=test --out=...: report-test.json, copied
  robustness.json     python eval.py RUN --suite=robustness --data.root=DATA --split=test --out=...: copied
A file that is not there leaves its table as it is, and is named. Figures of other weights are refused: the SHA-256 in
a file is that of the weights, or of the checkpoint they were written from. Without --into the tables are printed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.checkpoint import read_checkpoint
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from avfusion.files import sha256_of, whole_text_file
from avfusion.released import require_released
from benchmarks.own_voice import as_text as own_voice_table
from benchmarks.side_by_side import as_text as side_by_side_table
from benchmarks.weighted_figures import in_words
from benchmarks.write_up import markdown, read_figures, replace_between

MARKER = "card"
Figures = dict[str, Any]


def main() -> None:
    """Reads the command line, fills or prints."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("figures", type=Path, metavar="FIGURES", help="folder of JSON files")
    parser.add_argument("--weights", type=Path, help="released weights (default: the package's)")
    parser.add_argument("--into", type=Path, help="a Markdown file with markers")
    options = parser.parse_args()
    if not options.figures.is_dir():
        raise UsageError(f"{options.figures}: no folder there; expected one of JSON files, see --help")
    weights = options.weights or require_released()
    made = tables(options.figures, weights)
    if options.into is None:
        print("\n\n".join(f"{name}\n\n{text}" for name, text in made.items()))
        return
    content = options.into.read_text(encoding="utf-8")
    for name, text in made.items():
        content = replace_between(content, MARKER, name, text, options.into)
    with whole_text_file(options.into) as file:
        file.write(content)
    print(f"  {options.into}: {', '.join(made)}")


def tables(folder: Path, weights: Path) -> dict[str, str]:
    """Every table that can be made, by the name of its marker.

    Raises:
        AvfusionError: the weights or a file is damaged, or figures are of other weights.
    """
    content = read_checkpoint(weights)
    facts = content.get("facts")
    if not isinstance(facts, dict):
        raise UsageError(
            f"{weights}: no released weights but a checkpoint; python -m avfusion.released.export makes them"
        )
    known = {sha256_of(weights), facts.get("checkpoint_sha256")}
    made = {"facts": facts_table(facts, content["config"])}
    for name, (file, table) in TABLES.items():
        path = folder / file
        if not path.is_file():
            print(f"{name}: left as it is, no {path} (see --help)", file=sys.stderr)
            continue
        figures = read_figures(path)
        try:
            if figures["checkpoint"]["sha256"] not in known:
                raise AvfusionError(f"{path}: figures of other weights than {weights}; measure these")
            if file in WITH_LAGS and not figures["lags_taken_out"]:
                raise AvfusionError(f"{path}: no lags were taken out; see --help")
            made[name] = f"`{without_folders(figures['command'])}`\n\n{table(figures)}"
        except (KeyError, TypeError, IndexError) as error:
            raise AvfusionError(f"{path}: not the figures that {name} takes ({error!r}); see --help") from error
    return made


def without_folders(command: str) -> str:
    """A command line with the last name of every absolute path: the rest is of one machine."""
    return re.sub(r"(?<![^\s=])/(?:[^\s/]+/)*([^\s/]+)", r"\1", command)


def facts_table(facts: Figures, config: Figures) -> str:
    """What the weights say of themselves."""
    data, millions = config["data"], facts["multiply_adds_per_face_frame"] / 1e6
    rows = [
        ["name, licence", f"`{facts['name']}`, {facts['licence']}"],
        ["size", f"{facts['parameters']:,d} parameters, {millions:.1f} M multiply-adds a face-frame"],
        ["sees", f"{data['crop_size']}x{data['crop_size']} grey, region {data['region']} of the crop, 25 a second"],
        ["hears", f"log-mel of {data['num_mels']} bands, 100 a second"],
        ["code", f"commit `{facts['commit']}`, seed {facts['seed']}, epoch {facts['epoch']}"],
        ["weights", "running average" if facts["averaged_weights"] else "of the last step of that epoch"],
        ["learnt from", ", ".join(facts["talkers"]["trained_on"])],
        ["settings chosen on", ", ".join(facts["talkers"].get("chosen_on", [])) or "nobody"],
    ]
    if level := facts.get("level"):
        moved = f"{level['scale']:g} * logit + {level['offset']:g}, which changes no order"
        rows.append(["level of the score", f"{moved}; set on {level['set_on']}"])
    if found := facts.get("validation"):
        words = in_words(found["average_precision"], found["average_precision_interval"])
        rows.append(["AP in validation", f"{words} ({found['dataset'].get('name')} / {found['split']})"])
    sources = [[one["name"], one["licence"], one["source"], one["use"]] for one in facts["data"]]
    return f"{markdown(['', ''], rows)}\n\n{markdown(['data', 'licence', 'source', 'use'], sources)}"


def corpora_table(report: Figures) -> str:
    """AP of each corpus of an evaluation."""
    rows = []
    for row in [{**report["all"], "source": "all"}, *report["sources"]]:
        speaking = row["chance"] if "chance" in row else row["num_positive"] / row["num_rows"]
        ap = in_words(row["average_precision"], row["average_precision_interval"])
        rows.append([row["source"], ap, in_words(speaking, None), in_words(row.get("auroc"), None)])
    return f"{report['dataset']} / {report['split']}\n\n{markdown(['corpus', 'AP', 'chance', 'AUROC'], rows)}"


def desync_table(report: Figures) -> str:
    """False accepts by shift."""
    rows = []
    for row in report["desync"]["rows"]:
        rate = in_words(row["false_accept_rate"], row["false_accept_rate_interval"])
        rows.append([row["condition"], rate, in_words(row["own_sound_rate"], None), str(row["num_tracks"])])
    head = ["sound", "accepted", "of these with their own sound", "tracks"]
    return f"{report['dataset']} / {report['split']}\n\n{markdown(head, rows)}"


TABLES: dict[str, tuple[str, Callable[[Figures], str]]] = {
    "own_voice": ("own_voice.json", own_voice_table),
    "own_voice_each": ("own_voice_each.json", own_voice_table),
    "own_voice_lags": ("own_voice_lags.json", own_voice_table),
    "side_by_side": ("side_by_side.json", side_by_side_table),
    "corpora": ("report.json", corpora_table),
    "desync": ("robustness.json", desync_table),
}
WITH_LAGS = ("own_voice_each.json", "own_voice_lags.json", "side_by_side.json")


if __name__ == "__main__":
    sys.exit(run_command(main))
