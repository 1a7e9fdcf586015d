"""The table that every benchmark prints and the JSON file that it writes: medians, spread, ratios and targets."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results"
VERSIONS = ("marlnb", "torch", "torchrl", "tensordict", "pettingzoo", "mpe2", "numpy", "h5py", "supersuit")


@dataclass(frozen=True)
class Row:
    """A quantity that was measured several times.

    Attributes:
        what: a name, unique in its table.
        values: one per repetition, in `unit`.
        against: the row that the ratio is taken to: `median(values) / median(against's values)`.
        target: for the ratio or, where there is no `against`, for the median.
        at_most: the target is an upper bound.
    """

    what: str
    values: tuple[float, ...]
    unit: str
    against: str | None = None
    target: float | None = None
    at_most: bool = False

    @property
    def median(self) -> float:
        return median(self.values)


def ratio(row: Row, rows: Sequence[Row]) -> float | None:
    if row.against is None:
        return None
    return row.median / next(other.median for other in rows if other.what == row.against)


def reached(row: Row, rows: Sequence[Row]) -> bool | None:
    """Whether the target is met; None where there is none."""
    if row.target is None:
        return None
    number = ratio(row, rows)
    number = row.median if number is None else number
    return number <= row.target if row.at_most else number >= row.target


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; its cells are not escaped."""
    return "\n".join(markdown_row(cells) for cells in (header, ["---"] * len(header), *rows))


def markdown_row(cells: Sequence[str]) -> str:
    """A line of a table, also for tables that are printed line by line."""
    return f"| {' | '.join(cells)} |"


def table(title: str, rows: Sequence[Row]) -> str:
    """A table in Markdown: median, lowest and highest of the repetitions, ratio, target and whether it is met."""
    lines = []
    for row in rows:
        number = ratio(row, rows)
        shown = "" if number is None else f"{number:.2f}× {row.against}"
        sign, factor = ("≤" if row.at_most else "≥"), ("" if number is None else "×")
        target = "" if row.target is None else f"{sign} {_figures(row.target)}{factor}"
        met = {None: "", True: "met", False: "missed"}[reached(row, rows)]
        spread = f"{_figures(min(row.values))} – {_figures(max(row.values))}"
        lines.append((row.what, _figures(row.median), spread, row.unit, shown, target, met))
    header = ("what", "median", "low – high", "unit", "ratio", "target", "")
    return f"### {title}\n\n{markdown_table(header, lines)}"


def report(name: str, title: str, rows: Sequence[Row], **details: Any) -> Path:
    """Prints the table and writes it, each value and the machine to `benchmarks/results/<name>.json`."""
    print(table(title, rows), flush=True)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    written = [
        {**asdict(row), "median": row.median, "ratio": ratio(row, rows), "reached": reached(row, rows)} for row in rows
    ]
    content = {"title": title, "rows": written, "machine": machine(), **details}
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"\n{path}", flush=True)
    return path


def machine() -> dict[str, Any]:
    """The circumstances that a figure depends on besides the code: processor, usable cores, load, versions."""
    model = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "processor": model[0] if model else platform.processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: version for name in VERSIONS if (version := _version(name))},
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _figures(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
