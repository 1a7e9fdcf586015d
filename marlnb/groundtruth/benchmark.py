"""benchmark: marlnb's analyses on every circuit, network, kind of sharing and seed, scored and shown as a table."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from marlnb.display.formatting import format_clock
from marlnb.errors import AnalysisError
from marlnb.groundtruth.answer_key import NetworkName
from marlnb.groundtruth.instance import Analyse, Instance, analyses
from marlnb.groundtruth.planting import NETWORKS, Planted, circuit_names, planted, runs_on
from marlnb.groundtruth.score_cache import CachedScore, ScoreCache
from marlnb.groundtruth.scoring.faithfulness import onset_steps, spillover, with_faithfulness
from marlnb.groundtruth.scoring.finding import check_unique
from marlnb.groundtruth.scoring.score import Score, score
from marlnb.recording.file.reader import Recording
from marlnb.training.collect.threads import torch_threads

RECOVERED_TARGET, DISCOVERY_TARGET = 0.95, 0.05
SCORES = "scores.jsonl"
Version = tuple[str, NetworkName, bool, int]  # circuit, network, whether weights are shared, seed


@dataclass(frozen=True)
class Benchmark:
    """The scores of a grid.

    Attributes:
        scores: every score.
        spillover: the largest cross-agent effect of any instance, in logits; it must be 0. None: not measured.
        seconds: processor time by analysis.
    """

    scores: tuple[Score, ...]
    spillover: float | None
    seconds: dict[str, float]

    def rows(self) -> pd.DataFrame:
        """One row per score."""
        return pd.DataFrame([score.to_json() for score in self.scores])

    def table(self) -> pd.DataFrame:
        """Analysis by circuit: recovered share, and decoys claimed of those that could have been."""
        cells: dict[str, dict[str, str]] = {}
        for name, scores in self._by_analysis().items():
            circuits = dict.fromkeys(s.finding.circuit for s in scores)
            cells[name] = {c: _cell([s for s in scores if s.finding.circuit == c]) for c in circuits}
            cells[name]["all"] = _cell(scores)
        return pd.DataFrame.from_dict(cells, orient="index")

    def kinds(self) -> pd.DataFrame:
        """Analysis by kind of claim: recovered share; and the share of claimed units that are random features."""
        cells: dict[str, dict[str, float]] = {}
        for name, scores in self._by_analysis().items():
            items = [item for s in scores for item in s.items]
            kinds = dict.fromkeys(item.kind for item in items)
            cells[name] = {kind: float(np.mean([i.recovered for i in items if i.kind == kind])) for kind in kinds}
            stray_shares = [s.strays for s in scores if s.strays is not None]
            if stray_shares:
                cells[name]["(strays)"] = float(np.mean(stray_shares))
        return pd.DataFrame.from_dict(cells, orient="index")

    def abstentions(self) -> pd.DataFrame:
        """For analyses that declined anything: by kind, the declined share of what was to be found.

        Two more columns give, over all kinds, the share recovered of what was claimed, and of everything, with what
        was declined counted as missed.
        """
        cells: dict[str, dict[str, float]] = {}
        for name, scores in self._by_analysis().items():
            claimed, declined = [i for s in scores for i in s.items], [i for s in scores for i in s.abstained]
            if not declined:
                continue
            kinds = Counter(item.kind for item in declined)
            cells[name] = {kind: n / (n + sum(i.kind == kind for i in claimed)) for kind, n in kinds.items()}
            recovered = sum(item.recovered for item in claimed)
            cells[name]["all"] = len(declined) / (len(claimed) + len(declined))
            cells[name]["recovered of what was claimed"] = recovered / len(claimed) if claimed else float("nan")
            cells[name]["recovered of everything"] = recovered / (len(claimed) + len(declined))
        return pd.DataFrame.from_dict(cells, orient="index")

    @staticmethod
    def join(parts: Sequence[Mapping[str, Any]]) -> Benchmark:
        """Joins runs of parts of the grid, each as `to_json` wrote it.

        Raises:
            AnalysisError: a part is something else, or an analysis of an instance is there more than once.
        """
        fields = ("scores", "spillover", "seconds")
        for part in parts:
            if not isinstance(part, Mapping) or not all(name in part for name in fields):
                raise AnalysisError(f"expected what --json wrote, with {', '.join(fields)}")
        seconds: dict[str, float] = {}
        try:
            scores = [Score.from_json(line) for part in parts for line in part["scores"]]
            for part in parts:
                for name, spent in part["seconds"].items():
                    seconds[name] = seconds.get(name, 0.0) + spent
            largest = _largest(part["spillover"] for part in parts)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise AnalysisError(f"expected what --json wrote, got a damaged part: {error!r}") from error
        check_unique((s.finding for s in scores), "score")
        ordered = tuple(sorted(scores, key=lambda s: s.finding.analysis))
        return Benchmark(ordered, largest, seconds)

    def to_json(self) -> dict[str, Any]:
        return {"scores": [s.to_json() for s in self.scores], "spillover": self.spillover, "seconds": self.seconds}

    def __repr__(self) -> str:
        declined = self.abstentions()
        declined_text = f"share that was declined\n{declined.to_string(na_rep='', float_format='{:.3f}'.format)}\n\n"
        return (
            "recovered share | decoys claimed of those that could have been\n"
            f"{self.table().to_string(na_rep='')}\n\nrecovered share by kind of claim\n"
            f"{self.kinds().to_string(na_rep='', float_format=lambda x: f'{x:.3f}')}\n\n"
            f"{declined_text if len(declined) else ''}"
            "largest effect on another agent's logits of the same step: "
            f"{'not measured' if self.spillover is None else format(self.spillover, 'g')}"
        )

    def _by_analysis(self) -> dict[str, list[Score]]:
        scores: dict[str, list[Score]] = {}
        for each in self.scores:
            scores.setdefault(each.finding.analysis, []).append(each)
        return scores


def benchmark(
    seeds: Iterable[int] = range(3),
    *,
    names: Sequence[str] | None = None,
    circuits: Iterable[str] | None = None,
    episodes: int = 60,
    path: str | os.PathLike[str] = "runs/groundtruth",
    progress: bool = False,
) -> Benchmark:
    """Runs and scores analyses. Scores that are already in the folder's `scores.jsonl` are not computed again.

    Args:
        seeds: of the instances, each in four versions: mlp and gru, shared and unshared.
        names: names of the analyses; None: all.
        circuits: names of the circuits; None: all.
        episodes: recorded episodes of each instance.
        path: folder of the recordings and scores.
        progress: print a line for each instance.
    Raises:
        UnknownNameError: no such analysis or circuit.
        AnalysisError: the folder's scores cannot be read.
    """
    selected = analyses(None if names is None else list(names))
    cache = ScoreCache.open(Path(path) / SCORES)
    grid = [
        (each, [n for n in selected if runs_on(each.task.name, n)])
        for each in instances(versions(seeds, circuits), path)
    ]
    todo = [[name for name in names if cache.get(each, episodes, name) is None] for each, names in grid]
    started, total, done = time.monotonic(), sum(map(len, todo)), 0
    for number, ((each, _), missing) in enumerate(zip(grid, todo), 1):
        if not missing:
            continue
        for cached in _score_all(each, {name: selected[name] for name in missing}, episodes):
            cache.add(each, episodes, cached)
            done += 1
        if progress:
            remaining = format_clock((time.monotonic() - started) * (total - done) / done)
            print(f"{number}/{len(grid)} {each.agents.path.name} done, {remaining} left", flush=True)
    lines = [
        cache.lines[each.task.key_sha256, episodes, name]
        for name in sorted(selected)
        for each, names in grid
        if name in names
    ]
    seconds = {name: sum(x.seconds for x in lines if x.score.finding.analysis == name) for name in selected}
    return Benchmark(tuple(x.score for x in lines), _largest(x.spillover for x in lines), seconds)


def _score_all(planted: Planted, selected: Mapping[str, Analyse], episodes: int) -> Iterator[CachedScore]:
    one_thread = torch_threads(1), threadpool_limits(1)  # networks are small: threads wait for each other
    with one_thread[0], one_thread[1], planted.record(episodes, name=f"recording-{episodes}") as recording:
        largest_spillover = spillover(planted, recording)
        for analyse in selected.values():
            started = time.process_time()
            result = run_and_score(planted, recording, analyse)
            yield CachedScore(result, time.process_time() - started, largest_spillover)


def versions(seeds: Iterable[int], circuits: Iterable[str] | None) -> list[Version]:
    """The grid of circuits, networks, sharing and seeds; circuits=None: all."""
    names = list(circuits or ())
    return list(itertools.product(names or circuit_names(), NETWORKS, (True, False), seeds))


def instances(grid: Iterable[Version], path: str | os.PathLike[str]) -> Iterator[Planted]:
    """The instances of a grid."""
    for name, network, shared, seed in grid:
        yield planted(name, network, shared=shared, seed=seed, path=path)


def run_and_score(planted: Planted, recording: Recording, analyse: Analyse) -> Score:
    """One analysis of one instance, scored: the analysis does not see the key."""
    finding = with_faithfulness(planted, recording, analyse(Instance.of(planted, recording)))
    return score(finding, planted.key, onsets=onset_steps(recording, planted.key))


def _largest(spillovers: Iterable[float | None]) -> float | None:
    """The largest; None if none was measured."""
    return max((float(x) for x in spillovers if x is not None), default=None)


def _cell(scores: Sequence[Score]) -> str:
    recovered = [item.recovered for s in scores for item in s.items]
    claimed, decoys = sum(s.decoys_claimed for s in scores), sum(s.decoys for s in scores)
    share = f"{np.mean(recovered):.1%}" if recovered else "–"
    return f"{share} | {claimed}/{decoys}" if decoys else share
