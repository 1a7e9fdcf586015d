"""Development: what, when and where. A score of each site at each checkpoint of a training.

Source of the figure: McGrath et al. 2021, Acquisition of Chess Knowledge in AlphaZero, section 4 (arXiv:2111.09259).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from marlnb.analysis.data.labels import Label
from marlnb.analysis.data.views import View, site_agents
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.representations.development_result import Development
from marlnb.analysis.representations.similarity import similarity
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import AnalysisError, unknown
from marlnb.training.runs.run import Run

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

Measure = Literal["decode", "tuning", "similarity"]
Score = tuple[float, float, float, float]
"""value, low, high, control."""
MEASURES = {
    "decode": "observation alone",
    "tuning": "labels of other episodes",
    "similarity": "episodes paired at random",
}


def development(
    recordings: Recording | Sequence[Recording],
    *,
    label: Label | None = None,
    measure: Measure = "decode",
    sites: Sequence[str] | None = None,
    agents: Sequence[str] | None = None,
    n_shuffles: int = 20,
    seed: int = 0,
) -> Development:
    """How a score of each site changes over the checkpoints of a training.

    Args:
        recordings: one that spans checkpoints (`record(run, checkpoint=[...])`), or one of each.
        label: what is decoded, or units are tuned to; none for similarity.
        measure: decode: how well a linear model reads the label; tuning: share of the units that are tuned to it;
            similarity: linear CKA to the last checkpoint's units, whose recorded observations are shown to the earlier
            ones (needs the run folder).
        sites: None: all that are recorded. agents: None: all that a site is of.
    Raises:
        AnalysisError: fewer than two checkpoints, or one twice; a label for similarity, or none for the others.
    """
    if measure not in MEASURES:
        raise AnalysisError(unknown("measure of development", measure, MEASURES))
    if (label is None) != (measure == "similarity"):
        raise AnalysisError(f"measure={measure!r} takes {'no label' if measure == 'similarity' else 'a label'}")
    at = _checkpoints(recordings)
    last = at[-1][0]
    wanted = list(last.sites if sites is None else sites)
    places = [(site, agent) for site in wanted for agent in site_agents(last, site, agents)]
    notes: list[str] = []
    metrics: set[str] = set()
    scores = np.full((4, len(places), len(at)), np.nan)
    for i, (site, agent) in enumerate(places):
        for j, (recording, iteration) in enumerate(at):
            if measure == "similarity":
                found = _to_last(at[-1], site, agent, iteration, n_shuffles, seed, notes)
            elif measure == "tuning":
                found = _tuned(recording, site, agent, label, iteration, n_shuffles, seed, notes)
            else:
                found = _decoded(recording, site, agent, label, iteration, n_shuffles, seed, notes, metrics)
            scores[:, i, j] = found
    return Development(
        what=_what(measure, label, metrics),
        places=tuple(site if len(last[site].labels["agent"]) == 1 else f"{agent} {site}" for site, agent in places),
        iterations=np.array([iteration for _, iteration in at]),
        values=scores[0],
        low=scores[1],
        high=scores[2],
        control=scores[3],
        control_name=MEASURES[measure],
        returns=_returns(at),
        warnings=tuple(dict.fromkeys(notes)),
    )


def _checkpoints(recordings: Recording | Sequence[Recording]) -> list[tuple[Recording, int]]:
    """Each checkpoint with the recording that holds it, ascending."""
    from marlnb.recording.file.reader import Recording

    given = [recordings] if isinstance(recordings, Recording) else list(recordings)
    found = [(one, int(iteration)) for one in given for iteration in one.checkpoints["iteration"].unique()]
    iterations = [iteration for _, iteration in found]
    if len(set(iterations)) < 2 or len(set(iterations)) < len(iterations):
        raise AnalysisError(f"a development is over 2 checkpoints or more, each once; got {sorted(iterations)}")
    return sorted(found, key=lambda pair: pair[1])


def _decoded(
    recording: Recording,
    site: str,
    agent: str,
    label: Label | None,
    iteration: int,
    n_shuffles: int,
    seed: int,
    notes: list[str],
    metrics: set[str],
) -> Score:
    assert label is not None
    found = decode(
        recording,
        site=site,
        label=label,
        agent=agent,
        checkpoint=iteration,
        n_shuffles=n_shuffles,
        seed=seed,
        progress=False,
    )
    notes += [f"checkpoint {iteration}: {note}" for note in found.warnings]
    metrics.add(found.metric)
    one = found.scores[0]
    return one.score, one.low, one.high, one.observation


def _tuned(
    recording: Recording,
    site: str,
    agent: str,
    label: Label | None,
    iteration: int,
    n_shuffles: int,
    seed: int,
    notes: list[str],
) -> Score:
    assert label is not None
    found = tuning(
        recording,
        site=site,
        by=label,
        agent=agent,
        checkpoint=iteration,
        n_shuffles=max(n_shuffles, 20),
        repetitions=20,
        seed=seed,
    )
    notes += [f"checkpoint {iteration}: {note}" for note in found.warnings]
    share = len(found.tuned) / found.n_units
    return share, share, share, 0.05


def _to_last(
    last: tuple[Recording, int],
    site: str,
    agent: str,
    iteration: int,
    n_shuffles: int,
    seed: int,
    notes: list[str],
) -> Score:
    """The last checkpoint's moments, seen by both; rows of the last checkpoint only."""
    recording, newest = last
    run = recording.run_path
    if run is None:
        raise AnalysisError(f"{recording.path} lies in no run folder, so its earlier checkpoints are not known")
    have = [checkpoint.iteration for checkpoint in Run.open(run).checkpoints]
    if iteration not in have:
        raise AnalysisError(
            f"to compare checkpoint {iteration} with the last its policies are shown the last one's moments, and {run} "
            f"keeps only checkpoints {have}: train with keep_checkpoints=0, or take measure='decode' or 'tuning'"
        )
    index = recording.checkpoints.set_index("iteration")
    rows = recording.rows["episode"].to_numpy()
    bounds = index.loc[[newest], ["row_start", "row_stop"]].to_numpy()
    episodes = tuple(int(n) for start, stop in bounds for n in np.unique(rows[start:stop]))
    here = View(recording, site, agent, checkpoint=newest, episodes=episodes)
    there = View(recording, site, agent, subject=run, checkpoint=iteration, episodes=episodes)
    found = similarity(there, here, n_shuffles=max(1, n_shuffles // 4), repetitions=100, seed=seed)
    notes += list(found.warnings)
    return found.score, found.low, found.high, found.shuffled


def _what(measure: Measure, label: Label | None, metrics: set[str]) -> str:
    if measure == "similarity":
        return "linear CKA to the last checkpoint"
    name = label if isinstance(label, str) else " ".join(map(str, label)) if isinstance(label, tuple) else "label"
    return (
        f"share of units tuned to {name}" if measure == "tuning" else f"{name} decoded ({' or '.join(sorted(metrics))})"
    )


def _returns(at: Sequence[tuple[Recording, int]]) -> dict[str, np.ndarray]:
    """Mean return of each group's agents, by checkpoint."""
    found: dict[str, list[float]] = {group: [] for group in at[-1][0].groups}
    for recording, iteration in at:
        table = recording.checkpoints
        starts = recording.episodes["start"].to_numpy()
        inside = np.zeros(len(starts), bool)
        for first, stop in table.loc[table["iteration"] == iteration, ["row_start", "row_stop"]].to_numpy():
            inside |= (starts >= first) & (starts < stop)
        for group, values in found.items():
            own = recording.episodes.loc[inside, recording.group_agents(group)].to_numpy()
            values.append(float(np.nanmean(own)) if np.isfinite(own).any() else float("nan"))
    return {group: np.array(values) for group, values in found.items()}
