"""Development: the score of each site at each checkpoint of a training run. What appears, when and where.

Source: McGrath et al. 2021, Acquisition of Chess Knowledge in AlphaZero, section 4 (arXiv:2111.09259).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from marlnb.analysis.data.labels import Label
from marlnb.analysis.data.views import View, match_recorded_sites, site_agents
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.representations.development_result import Development
from marlnb.analysis.representations.similarity import similarity
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import AnalysisError, unknown
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.training.runs.run import Run
from marlnb.values import checked_number

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

Measure = Literal["decode", "tuning", "similarity"]
CONTROL_NAMES = {
    "decode": "observation alone",
    "tuning": "",
    "similarity": "episodes paired at random",
}


@dataclass(frozen=True)
class _Score:
    value: float
    low: float
    high: float
    control: float
    untrained: float
    warnings: tuple[str, ...]
    metric: str = ""


def development(
    recordings: RecordingLike | Sequence[RecordingLike],
    *,
    label: Label | None = None,
    measure: Measure = "decode",
    sites: str | Sequence[str] | None = None,
    agents: str | Sequence[str] | None = None,
    n_shuffles: int = 20,
    seed: int = 0,
) -> Development:
    """How a score of each site changes over the checkpoints of a training run.

    Args:
        recordings: one that spans checkpoints (`record(run, checkpoint=[...])`), or one of each; or their paths.
        label: what is decoded, or what units are tuned to; None for similarity.
        measure: decode: how well a linear model reads the label; tuning: share of the units that are tuned to it;
            similarity: linear CKA to the last checkpoint's units, whose recorded observations are given to the earlier
            policies (needs the run folder).
        sites: by name or glob, such as `"listener/actor/*"`; None for all recorded sites.
        agents: one name or several; None for all agents of a site.
        n_shuffles: shuffles of each score.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: fewer than two checkpoints, or a checkpoint twice; a label for similarity, or none for the other
            measures; no checkpoint has a score. Scores that are not available, as where the label never varies at a
            checkpoint or its policies were not saved, are NaN, and a warning names the checkpoint and the reason.
    """
    if measure not in CONTROL_NAMES:
        raise AnalysisError(unknown("measure of development", measure, CONTROL_NAMES))
    if (label is None) != (measure == "similarity"):
        raise AnalysisError(f"measure={measure!r} takes {'no label' if measure == 'similarity' else 'a label'}")
    n_shuffles = checked_number(n_shuffles, int, "n_shuffles", ge=1)
    seed = checked_number(seed, int, "seed", ge=0)
    checkpoints = _checkpoints(recordings)
    last = checkpoints[-1][0]
    site_names = last.sites if sites is None else match_recorded_sites(last, sites)
    lines = [(site, agent) for site in site_names for agent in site_agents(last, site, agents)]

    def score(site: str, agent: str, recording: Recording, iteration: int) -> _Score:
        options = {"site": site, "agent": agent, "label": label, "checkpoint": iteration, "seed": seed}
        try:
            if measure == "similarity":
                return _similarity_to_last(checkpoints[-1], site, agent, iteration, n_shuffles, seed)
            return _label_score(measure, recording, n_shuffles, options)
        except AnalysisError as error:
            return _Score(nan, nan, nan, nan, nan, (f"checkpoint {iteration}: {error}",))

    scores = [[score(site, agent, *checkpoint) for checkpoint in checkpoints] for site, agent in lines]
    all_scores = [score for row in scores for score in row]
    warnings = tuple(dict.fromkeys(warning for score in all_scores for warning in score.warnings))
    if all(score.value != score.value for score in all_scores):
        raise AnalysisError("; ".join(["no checkpoint has a score", *warnings[:1]]))

    def matrix(name: str) -> np.ndarray:
        return np.array([[getattr(score, name) for score in row] for row in scores])

    return Development(
        what=_describe(measure, label, {score.metric for score in all_scores if score.metric}),
        sites=tuple(site if len(last[site].labels["agent"]) == 1 else f"{agent} {site}" for site, agent in lines),
        iterations=np.array([iteration for _, iteration in checkpoints]),
        values=matrix("value"),
        **{name: matrix(name) for name in ("low", "high", "control", "untrained")},
        control_name=CONTROL_NAMES[measure],
        returns=_returns(checkpoints),
        warnings=warnings,
    )


def _checkpoints(recordings: RecordingLike | Sequence[RecordingLike]) -> list[tuple[Recording, int]]:
    """Each checkpoint's recording and iteration, ascending."""
    is_list = isinstance(recordings, Sequence) and not isinstance(recordings, str)
    items: Any = recordings if is_list else [recordings]
    listed = [opened_recording(item) for item in items]
    checkpoints = [
        (recording, int(iteration)) for recording in listed for iteration in recording.checkpoints["iteration"].unique()
    ]
    iterations = [iteration for _, iteration in checkpoints]
    if len(set(iterations)) < 2 or len(set(iterations)) < len(iterations):
        raise AnalysisError(f"a development needs 2 or more checkpoints, each once; got {sorted(iterations)}")
    return sorted(checkpoints, key=lambda pair: pair[1])


def _label_score(measure: Measure, recording: Recording, n_shuffles: int, options: Mapping[str, Any]) -> _Score:
    """The score of a label at one checkpoint; options: those that `decode` and `tuning` share."""
    checkpoint = f"checkpoint {options['checkpoint']}"
    if measure == "tuning":
        tuned = tuning(recording, n_shuffles=max(n_shuffles, 20), n_bootstrap=20, **options)
        share = len(tuned.tuned) / tuned.n_units
        untrained = nan if tuned.untrained is None else tuned.untrained.n_tuned / tuned.n_units
        warnings = tuple(f"{checkpoint}: {warning}" for warning in tuned.warnings)
        return _Score(share, nan, nan, nan, untrained, warnings)
    decoded = decode(recording, n_shuffles=n_shuffles, progress=False, **options)
    score, warnings = decoded.scores[0], tuple(f"{checkpoint}: {warning}" for warning in decoded.warnings)
    untrained = nan if score.untrained is None else score.untrained
    return _Score(score.score, score.low, score.high, score.observation, untrained, warnings, decoded.metric)


def _similarity_to_last(
    last: tuple[Recording, int], site: str, agent: str, iteration: int, n_shuffles: int, seed: int
) -> _Score:
    """Both checkpoints' policies on the last checkpoint's recorded observations."""
    recording, last_iteration = last
    run = recording.run_path
    if run is None:
        raise AnalysisError(f"{recording.path} is in no run folder, so its earlier checkpoints are unknown")
    if iteration not in [checkpoint.iteration for checkpoint in Run.open(run).checkpoints]:
        raise AnalysisError(
            f"its policies, which measure='similarity' needs, are not saved in {run}; a training run saves policies "
            "every `checkpoint_every` iterations, and keeps all with keep_checkpoints=0"
        )
    index = recording.checkpoints.set_index("iteration")
    rows = recording.rows["episode"].to_numpy()
    bounds = index.loc[[last_iteration], ["row_start", "row_stop"]].to_numpy()
    episodes = tuple(int(n) for start, stop in bounds for n in np.unique(rows[start:stop]))
    now = View(recording, site, agent, checkpoint=last_iteration, episodes=episodes)
    earlier = View(recording, site, agent, policy_source=run, checkpoint=iteration, episodes=episodes)
    result = similarity(earlier, now, n_shuffles=max(1, n_shuffles // 4), n_bootstrap=100, seed=seed)
    return _Score(result.score, result.low, result.high, result.shuffled, nan, result.warnings)


def _describe(measure: Measure, label: Label | None, metrics: set[str]) -> str:
    if measure == "similarity":
        return "linear CKA to the last checkpoint"
    name = label if isinstance(label, str) else " ".join(map(str, label)) if isinstance(label, tuple) else "label"
    if measure == "tuning":
        return f"share of units tuned to {name}"
    return f"{name} decoded ({' or '.join(sorted(metrics))})"


def _returns(checkpoints: Sequence[tuple[Recording, int]]) -> dict[str, np.ndarray]:
    """Mean return of each group's agents, by checkpoint."""
    returns: dict[str, list[float]] = {group: [] for group in checkpoints[-1][0].groups}
    for recording, iteration in checkpoints:
        table = recording.checkpoints
        starts = recording.episodes["start"].to_numpy()
        first, stop = table.loc[table["iteration"] == iteration, ["row_start", "row_stop"]].to_numpy().T
        played = ((starts[:, None] >= first) & (starts[:, None] < stop)).any(axis=1)
        for group, means in returns.items():
            values = recording.episodes.loc[played, recording.group_agents(group)].to_numpy()
            means.append(float(np.nanmean(values)) if np.isfinite(values).any() else float("nan"))
    return {group: np.array(means) for group, means in returns.items()}
