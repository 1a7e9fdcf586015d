"""benchmark: marlnb's analyses on every circuit, network, kind of sharing and seed, scored and laid out as a table."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from marlnb.formatting import format_clock
from marlnb.groundtruth.instance import Analyse, Case, analyses
from marlnb.groundtruth.planting import NETWORKS, Planted, asked_of, circuit_names, planted
from marlnb.groundtruth.score_cache import Ledger, Scored
from marlnb.groundtruth.scoring.faithfulness import measured, onset_steps, spillover
from marlnb.groundtruth.scoring.score import Score, score
from marlnb.recording.file.reader import Recording
from marlnb.training.collect.threads import torch_threads

RECOVERED_TARGET, DISCOVERY_TARGET = 0.95, 0.05
SCORES = "scores.jsonl"


@dataclass(frozen=True)
class Benchmark:
    """Every score; the largest cross-agent effect (logits) of any instance, which is to be 0; and by analysis the
    seconds of processor time that it took."""

    scores: tuple[Score, ...]
    spillover: float
    seconds: dict[str, float]

    def rows(self) -> pd.DataFrame:
        """One line a score."""
        return pd.DataFrame([line.to_json() for line in self.scores])

    def table(self) -> pd.DataFrame:
        """Analysis by circuit: recovered share, and decoys claimed of those that could have been."""
        found: dict[str, dict[str, str]] = {}
        for name in dict.fromkeys(s.finding.analysis for s in self.scores):
            mine = [s for s in self.scores if s.finding.analysis == name]
            circuits = dict.fromkeys(s.finding.circuit for s in mine)
            found[name] = {c: _cell([s for s in mine if s.finding.circuit == c]) for c in circuits}
            found[name]["all"] = _cell(mine)
        return pd.DataFrame.from_dict(found, orient="index")

    def kinds(self) -> pd.DataFrame:
        """Analysis by kind of claim: recovered share; and the share of claimed units that are random features."""
        cells: dict[str, dict[str, float]] = {}
        for name in dict.fromkeys(s.finding.analysis for s in self.scores):
            items = [item for s in self.scores if s.finding.analysis == name for item in s.items]
            kinds = dict.fromkeys(item.kind for item in items)
            cells[name] = {kind: float(np.mean([i.recovered for i in items if i.kind == kind])) for kind in kinds}
            strays = [s.strays for s in self.scores if s.finding.analysis == name and s.strays is not None]
            if strays:
                cells[name]["(strays)"] = float(np.mean(strays))
        return pd.DataFrame.from_dict(cells, orient="index")

    def abstentions(self) -> pd.DataFrame:
        """Of analyses that declined anything, by kind: the share of what was to be found that they declined; beside it,
        over all kinds, the share recovered of what they said and, with what they declined as missed, of everything."""
        cells: dict[str, dict[str, float]] = {}
        for name in dict.fromkeys(s.finding.analysis for s in self.scores):
            mine = [s for s in self.scores if s.finding.analysis == name]
            said, declined = ([i for s in mine for i in part(s)] for part in (lambda s: s.items, lambda s: s.abstained))
            if not declined:
                continue
            kinds = Counter(item.kind for item in declined)
            cells[name] = {kind: n / (n + sum(i.kind == kind for i in said)) for kind, n in kinds.items()}
            found = sum(item.recovered for item in said)
            cells[name]["all"] = len(declined) / (len(said) + len(declined))
            cells[name]["recovered of what was said"] = found / len(said) if said else float("nan")
            cells[name]["recovered of everything"] = found / (len(said) + len(declined))
        return pd.DataFrame.from_dict(cells, orient="index")

    @staticmethod
    def join(parts: Sequence[Mapping[str, Any]]) -> Benchmark:
        """Runs of parts of the grid, as `to_json` wrote each, in one."""
        scores = [Score.from_json(line) for part in parts for line in part["scores"]]
        seconds: dict[str, float] = {}
        for part in parts:
            for name, spent in part["seconds"].items():
                seconds[name] = seconds.get(name, 0.0) + spent
        ordered = tuple(sorted(scores, key=lambda s: s.finding.analysis))
        return Benchmark(ordered, max(part["spillover"] for part in parts), seconds)

    def to_json(self) -> dict[str, Any]:
        return {"scores": [s.to_json() for s in self.scores], "spillover": self.spillover, "seconds": self.seconds}

    def __repr__(self) -> str:
        declined = self.abstentions()
        apart = f"share that was declined\n{declined.to_string(na_rep='', float_format='{:.3f}'.format)}\n\n"
        return (
            "recovered share | decoys claimed of those near\n"
            f"{self.table().to_string(na_rep='')}\n\nrecovered share by kind of claim\n"
            f"{self.kinds().to_string(na_rep='', float_format=lambda x: f'{x:.3f}')}\n\n"
            f"{apart if len(declined) else ''}"
            f"largest effect on another agent's logits of the same step: {self.spillover:g}"
        )


def benchmark(
    seeds: Sequence[int] = range(3),
    *,
    names: Sequence[str] | None = None,
    circuits: Sequence[str] | None = None,
    episodes: int = 60,
    path: str | os.PathLike[str] = "runs/groundtruth",
    progress: bool = False,
) -> Benchmark:
    """Runs and scores analyses; what `scores.jsonl` in the folder has already is not done again.

    Args:
        seeds: of the instances, each in four kinds: mlp and gru, shared and unshared.
        names: of analyses; circuits: those to look at; None: all.
        episodes: recorded of each instance.
        path: folder of the recordings and scores.
    Raises:
        UnknownNameError: there is no such analysis or circuit. AnalysisError: the folder's scores cannot be read.
    """
    chosen = analyses(None if names is None else list(names))
    ledger = Ledger.open(Path(path) / SCORES)
    subjects = list(instances(seeds, circuits, path))
    asked = [[name for name in chosen if asked_of(each.question.name, name)] for each in subjects]
    todo = [
        [name for name in names if ledger.get(each, episodes, name) is None] for each, names in zip(subjects, asked)
    ]
    began, total, done = time.monotonic(), sum(map(len, todo)), 0
    for number, (subject, missing) in enumerate(zip(subjects, todo), 1):
        if not missing:
            continue
        for found in _score_all(subject, {name: chosen[name] for name in missing}, episodes):
            ledger.add(subject, episodes, found)
            done += 1
        if progress:
            rest = format_clock((time.monotonic() - began) * (total - done) / done)
            print(f"{number}/{len(subjects)} {subject.agents.path.name} done, {rest} left", flush=True)
    kept = [
        ledger.lines[each.question.key_sha256, episodes, name]
        for name in sorted(chosen)
        for each, names in zip(subjects, asked)
        if name in names
    ]
    seconds = {name: sum(k.seconds for k in kept if k.score.finding.analysis == name) for name in chosen}
    return Benchmark(tuple(k.score for k in kept), max((k.spillover for k in kept), default=0.0), seconds)


def _score_all(subject: Planted, chosen: Mapping[str, Analyse], episodes: int) -> Iterator[Scored]:
    one_thread = torch_threads(1), threadpool_limits(1)  # networks are small: threads wait for each other
    with one_thread[0], one_thread[1], subject.record(episodes, name=f"recording-{episodes}") as recording:
        worst = spillover(subject, recording)
        for analyse in chosen.values():
            began = time.process_time()
            found = scored(subject, recording, analyse)
            yield Scored(found, time.process_time() - began, worst)


def instances(seeds: Sequence[int], circuits: Sequence[str] | None, path: str | os.PathLike[str]) -> Iterator[Planted]:
    """The grid: circuits, networks, sharing, seeds."""
    for name, network, shared, seed in itertools.product(circuits or circuit_names(), NETWORKS, (True, False), seeds):
        yield planted(name, network, shared=shared, seed=seed, path=path)


def scored(subject: Planted, recording: Recording, analyse: Analyse) -> Score:
    """One analysis of one instance, scored: the analysis sees no key."""
    finding = analyse(Case.of(subject, recording))
    return score(measured(subject, recording, finding), subject.key, onsets=onset_steps(recording, subject.key))


def _cell(scores: Sequence[Score]) -> str:
    items = [item.recovered for s in scores for item in s.items]
    claimed, near = sum(s.decoys_claimed for s in scores), sum(s.decoys for s in scores)
    share = f"{np.mean(items):.1%}" if items else "–"
    return f"{share} | {claimed}/{near}" if near else share
