"""`lineage.jsonl`: where each member of each generation came from, what was changed, and how fit it was. The record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from marlnb.disk import writing
from marlnb.populations.append_only import append_rows, cut_lines, sync_rows
from marlnb.training.runs.files import POPULATION as POPULATION
from marlnb.training.runs.files import read_lines
from marlnb.training.runs.records import checked_record

LINEAGE, MEMBERS = "lineage.jsonl", "members"  # the record, and the folder of the members' recordings
FOUNDER, KEPT, COPIED, REFUSED = "founder", "kept", "copied", "refused"  # operators that change nothing


@dataclass(frozen=True)
class Lineage:
    """One member in one generation.

    Attributes:
        generation: from 0.
        member: its place in the population, from 0.
        parent: the member from which it continues, of the generation before; None in the first.
        operator: what was done to the parent at the beginning: founder; kept, the parent itself; copied; or the kind
            of mutation; refused, if the mutation would not fit and the parent was copied as it is.
        note: why it was refused or diverged, or what was done to the weights.
        output_change: the largest change of an output of its networks by the mutation, on random inputs, relative to
            the largest output; None where neither networks nor weights were mutated.
        changes: by path, as `algorithm.lr`, the old and the new value.
        seed: of its environments, exploration and shuffles.
        options: by path, the values of all options that can mutate, while it trained; of networks only those that have
            been mutated in it or its ancestors.
        frames: that its weights have learned from when the generation ends, those of its ancestors included.
        fitness: at the end of the generation; None if its training diverged.
        score: of this generation's evaluation alone.
        returns: by group, of each evaluation episode, the mean return of one agent; with win_rate and nash, by
            opponent, the outcomes: 1 won, 0.5 a draw, 0 lost.
        evaluation_seed: episode k has the seed `evaluation_seed + k`, the same for all members and generations.
        checkpoint: SHA-256 of its weights at the end of the generation.
        parent_generation: of its parent, where each member has a training run and so its own pace; None: the one
            before.
    """

    generation: int
    member: int
    parent: int | None
    operator: str
    note: str = ""
    output_change: float | None = None
    changes: Mapping[str, list[Any]] = field(default_factory=dict)
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    frames: int = 0
    fitness: float | None = None
    score: float | None = None
    returns: Mapping[str, list[float | None]] = field(default_factory=dict)
    evaluation_seed: int = 0
    checkpoint: str | None = None
    parent_generation: int | None = None

    @property
    def id(self) -> str:
        """Generation and place, as "12-3"."""
        return f"{self.generation}-{self.member}"

    @property
    def parent_id(self) -> str | None:
        before = self.generation - 1 if self.parent_generation is None else self.parent_generation
        return None if self.parent is None else f"{before}-{self.parent}"


def read_lineage(folder: Path) -> list[Lineage]:
    """The lines in a population's folder: generation by generation, in the order of the places.

    Raises:
        RunError: a line is damaged. An incomplete last one is skipped.
    """
    path = folder / LINEAGE
    return [checked_record(row, Lineage, f"{path}, line {number},") for number, row in enumerate(read_lines(path), 1)]


class LineageFile:
    """Writes `lineage.jsonl`, which only grows. A checkpoint holds its number of lines.

    Attributes:
        folder: `<run>/population`.
        n_rows: lines that were written.
    """

    def __init__(self, run: Path) -> None:
        self.folder = run / POPULATION
        self.n_rows = 0

    def add(self, rows: Iterable[Lineage]) -> None:
        """Adds a generation."""
        rows = list(rows)
        append_rows(self.folder / LINEAGE, map(asdict, rows))
        self.n_rows += len(rows)

    def cut(self, n_rows: int) -> None:
        """Keeps the first lines, to which a resumed training run continues. Raises RunError: there are fewer."""
        with writing(self.folder):
            self.folder.mkdir(mode=0o700, exist_ok=True)
        cut_lines(self.folder / LINEAGE, n_rows)
        self.n_rows = n_rows

    def sync(self) -> None:
        """Makes the lines durable, before a checkpoint counts on them."""
        sync_rows(self.folder / LINEAGE)
