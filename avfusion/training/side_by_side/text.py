"""A comparison as tables: for the terminal, and for ``comparison.md``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from avfusion.checkpoint import encoders_in_words
from avfusion.data.identity import in_words
from avfusion.evaluation.paired import WHOLE
from avfusion.evaluation.tables import Table, bullets, interval, markdown_table, number, percent, text_table
from avfusion.training.side_by_side.runs import AS_ANNOTATED, FIGURES, OFFSET_ACCURACY

_FIGURE_NAMES = ("AP", "AUROC", "EER", "FPR at 95 % TPR", "ECE")


def as_text(content: dict[str, Any]) -> str:
    """The tables for the terminal."""
    head = "\n".join([f"\n{_title(content)}", *content["notes"]])
    return "\n\n".join([head, *(text_table(table) for table in _tables(content))]) + "\n"


def as_markdown(content: dict[str, Any], picture: str) -> str:
    """The whole of ``comparison.md``.

    Args:
        content: of ``comparison.json``.
        picture: as seen from its folder.
    """
    parts = [f"# {_title(content)}", bullets(_provenance(content)), *map(markdown_table, _tables(content))]
    parts.append("## Where the runs come from\n\n" + bullets(_source(run) for run in content["runs"]))
    parts.append(f"## Precision and recall, and AP with 95 % intervals\n\n![precision, recall and AP]({picture})")
    return "\n\n".join(parts) + "\n"


def _title(content: dict[str, Any]) -> str:
    return f"{content['dataset']} / {content['split']}: {len(content['runs'])} runs side by side"


def _provenance(content: dict[str, Any]) -> list[str]:
    counts, drawn = content["counts"], content["intervals"]
    return [
        f"command: `{content['command']}`",
        f"dataset: {content['dataset']}, {content['split']}; {in_words(content['data'])}",
        f"{counts['num_rows']} face boxes of which {counts['num_positive']} speak audibly"
        f" ({percent(counts['prevalence'])}, the AP of a constant score); {counts['num_tracks']} tracks,"
        f" {counts['num_videos']} videos, {counts['num_groups']} independent sources",
        "AP: VOC all-point interpolation over all face boxes of the split, as AVA defines it",
        f"differences: to {content['first']}, intervals 95 %, percentile bootstrap, both runs on the same"
        f" {drawn['num_drawn']} independent sources drawn with replacement, {drawn['resamples']} resamples, seed"
        f" {drawn['seed']}",
        "made with " + _versions(content["versions"]),
        *content["notes"],
    ]


def _source(run: dict[str, Any]) -> str:
    checkpoint, of_report = run["checkpoint"], run["intervals"]
    return (
        f"{run['name']}: folder `{run['folder']}`; checkpoint `{checkpoint['path']}`, epoch {checkpoint['epoch']},"
        f" sha256 `{checkpoint['sha256']}`; seed {run['seed']}; {run['model']}, {run['parameters']} parameters; scored"
        f"{_in_folder(run['root'])} on {run['device']} with {_versions(run['versions'])} by `{run['command']}`;"
        f"{' ' + encoders_in_words(run['encoders']) + ';' if run['encoders'] else ''}"
        f" interval of its AP: {of_report['resamples']} resamples, seed {of_report['seed']}"
    )


def _in_folder(root: str | None) -> str:
    return "" if root is None else f" in `{root}`"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _tables(content: dict[str, Any]) -> list[Table]:
    tables = [_figures_table(content["runs"])]
    if content["settings"]:
        tables.append(_settings_table(content["settings"], [run["name"] for run in content["runs"]]))
    tables.append(_difference_table(content))
    if content["seeds"]:
        tables.append(_seed_table(content["seeds"]))
    if content["subsets"]:
        tables.append(_subset_table(content))
    return tables


def _figures_table(runs: Sequence[dict[str, Any]]) -> Table:
    offsets, annotated = (
        any(run["figures"][figure] is not None for run in runs) for figure in (OFFSET_ACCURACY, AS_ANNOTATED)
    )
    ap, *others = _FIGURE_NAMES
    header = ["run", "model", "parameters", "epoch", "seed", ap, "95 %", *others]
    header += ["offset accuracy", "95 %, over clips"] if offsets else []
    header += ["AP, rows as annotated"] if annotated else []
    rows = [
        [
            run["name"],
            run["model"],
            f"{run['parameters'] / 1e6:.2f} M",
            str(run["checkpoint"]["epoch"]),
            str(run["seed"]),
            number(run["figures"][FIGURES[0]]),
            interval(run["interval"]),
            *(number(run["figures"][figure]) for figure in FIGURES[1:]),
            *([number(run["figures"][OFFSET_ACCURACY]), interval(run["offset_accuracy_interval"])] if offsets else []),
            *([number(run["figures"][AS_ANNOTATED])] if annotated else []),
        ]
        for run in runs
    ]
    return "All face boxes, as each run's report has them", header, rows


def _settings_table(settings: Mapping[str, Sequence[Any]], names: Sequence[str]) -> Table:
    rows = [[key, *(_value(value) for value in values)] for key, values in settings.items()]
    return "Settings that differ", ["setting", *names], rows


def _difference_table(content: dict[str, Any]) -> Table:
    header = ["run", "AP", "95 %", "better in", "AUROC", "95 %", "better in"]
    rows = []
    for name, found in content["differences"].items():
        (whole,) = (row for row in found if row["kind"] == WHOLE)
        rows.append([name, *_difference(whole["average_precision"]), *_difference(whole["auroc"])])
    title = f"Each run minus {content['first']}, on the same drawn sources; share of resamples in which it is better"
    return title, header, rows


def _seed_table(rows: Sequence[dict[str, Any]]) -> Table:
    offsets = any(row[OFFSET_ACCURACY] for row in rows)
    figures = [*FIGURES, *([OFFSET_ACCURACY] if offsets else [])]
    header = ["runs", "seeds", *_FIGURE_NAMES, *(["offset accuracy"] if offsets else [])]
    body = [
        [", ".join(row["runs"]), str(len(row["seeds"])), *(_mean(row[figure], ".4f") for figure in figures)]
        for row in rows
    ]
    if len(rows) > 1:
        header.append("AP minus the first row's, seed by seed")
        body = [[*cells, _mean(row["ahead"], "+.4f")] for cells, row in zip(body, rows, strict=True)]
    return "Runs that differ in the seed alone: mean ± half the 95 % interval of the mean over trainings", header, body


def _subset_table(content: dict[str, Any]) -> Table:
    others = list(content["differences"])
    names = ["by", "subset", "speaking", "boxes", "tracks", "sources", "positives"]
    header = [*names, content["first"], *others]
    body = []
    for index, subset in enumerate(content["subsets"]):
        rows = [content["differences"][name][index + 1] for name in others]  # all rows come first
        found = [row["average_precision"] for row in rows]
        body.append(
            [
                *(subset["kind"], subset["name"], percent(subset["prevalence"]), str(subset["num_rows"])),
                *(str(subset["num_tracks"]), str(rows[0]["num_groups"])),
                f"{subset['num_positive']} ({subset['positives']})",
                number(found[0]["second"] if found[0] else None),
                *(_marked(one) for one in found),
            ]
        )
    title = (
        f"AP of each subset, with the difference to {content['first']}: its own boxes; where its tracks never speak,"
        " beside the speaking boxes named under positives; * its interval excludes 0"
    )
    return title, header, body


def excludes_zero(difference: Mapping[str, Any]) -> bool:
    """Whether the interval of a difference lies on one side of 0."""
    ends = difference["interval"]
    return ends is not None and (ends[0] > 0 or ends[1] < 0)


def _marked(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    return f"{number(found['first'])} ({found['difference']:+.4f}{' *' if excludes_zero(found) else ''})"


def _difference(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return ["-"] * 3
    ends = found["interval"]
    return [
        f"{found['difference']:+.4f}",
        "-" if ends is None else f"{ends[0]:+.4f}..{ends[1]:+.4f}",
        percent(found["share_ahead"]),
    ]


def _mean(found: Mapping[str, Any] | None, digits: str) -> str:
    return "-" if found is None else f"{found['mean']:{digits}} ± {found['half_width']:.4f}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
