"""A benchmark's tables as Markdown: contenders by columns, differences, balance of shortcuts, and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from avfusion.evaluation.comparison import Balance, Contender, Difference, Interval
from avfusion.evaluation.seeds import SeedMean
from avfusion.evaluation.tables import markdown_rows


def main_table(contenders: Sequence[Contender], columns: Sequence[str], chance: Mapping[str, float]) -> str:
    """AP of every contender in every column, with the minutes of one training; chance in the last row."""
    rows = [[c.name, *(cell_text(c.cell(column)) for column in columns), minutes_text(c)] for c in contenders]
    rows.append(["chance", *(f"{chance[column]:.3f}" for column in columns), "-"])
    return markdown_rows(["", *columns, "minutes"], rows)


def difference_table(name: str, differences: Sequence[Difference]) -> str:
    """How far one contender is ahead of each other one, column by column."""
    columns = list(dict.fromkeys(d.column for d in differences))
    others = list(dict.fromkeys(d.other for d in differences))
    found = {(d.other, d.column): f"{signed(d.over_seeds)} {interval_text(d.over_scenes)}" for d in differences}
    rows = [[other, *(found.get((other, column), "-") for column in columns)] for other in others]
    return markdown_rows([f"{name} minus", *columns], rows)


def balance_table(balances: Mapping[tuple[str, str], tuple[Balance | None, str]]) -> str:
    """Heard against unheard tracks: (role, figure) to its balance and where the heard tracks come from."""
    rows = []
    for (role, figure), (found, positives) in balances.items():
        if found is None:
            rows.append([role, figure, *["-"] * 5, positives])
            continue
        numbers = [f"{found.heard:.4g}", f"{found.unheard:.4g}", f"{found.ratio:.3f}", interval_text(found.interval)]
        rows.append([role, figure, *numbers, f"{found.num_heard} / {found.num_unheard}", positives])
    return markdown_rows(
        ["role", "figure", "heard", "unheard", "ratio", "95 %", "tracks heard / unheard", "heard tracks of"], rows
    )


def verdicts(name: str, differences: Sequence[Difference]) -> list[str]:
    """One line a column: whether the contender is ahead of every other one, and of which not clearly."""
    lines = []
    for column in dict.fromkeys(d.column for d in differences):
        of_column = [d for d in differences if d.column == column]
        behind = [d for d in of_column if d.over_seeds.mean <= 0]
        close = [d for d in of_column if d.over_seeds.mean > 0 and not d.clear]
        text = f"{column}: {name} is {'NOT ' if behind else ''}on average ahead of every other row"
        if behind:
            text += f"; not of {_listed(behind)}"
        if close:
            text += f"; within an interval of {_listed(close)}"
        if not behind and not close:
            nearest = min(of_column, key=lambda d: d.over_seeds.mean)
            text += f", clear of all intervals; nearest {_listed([nearest])}"
        lines.append(text)
    return lines


def cell_text(value: SeedMean) -> str:
    """``0.912 ± 0.013``; without the second number where there is no interval."""
    return f"{value.mean:.3f}" + ("" if value.half_width is None else f" ± {value.half_width:.3f}")


def signed(value: SeedMean) -> str:
    """``+0.012 ± 0.005``."""
    return f"{value.mean:+.3f}" + ("" if value.half_width is None else f" ± {value.half_width:.3f}")


def interval_text(interval: Interval | None) -> str:
    """``(0.8..0.9)`` with three digits, or ``-``."""
    return "-" if interval is None else f"({interval[0]:.3f}..{interval[1]:.3f})"


def minutes_text(contender: Contender) -> str:
    """Mean wall time of one training; ``-`` where none is known."""
    times = list(contender.minutes.values())
    return f"{sum(times) / len(times):.1f}" if times else "-"


def _listed(differences: Sequence[Difference]) -> str:
    return ", ".join(f"{d.other} ({signed(d.over_seeds)})" for d in differences)
