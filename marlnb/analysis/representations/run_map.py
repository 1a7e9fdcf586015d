"""run_map: which runs' agents represent the same things, whatever their returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from marlnb.analysis.data.views import Units, View
from marlnb.analysis.representations.run_map_result import RunMap
from marlnb.analysis.representations.similarity import similarity_matrix
from marlnb.errors import AnalysisError
from marlnb.models.hooks.sites import group_of
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.training.policies.policy_source import PolicySourceLike, as_policy_source
from marlnb.training.runs.comparable import distinct_names
from marlnb.training.runs.run import Run
from marlnb.training.runs.status import EXPLORING, GREEDY, scores_of_group


def run_map(
    runs: Sequence[PolicySourceLike],
    recording: RecordingLike,
    *,
    site: str,
    agent: str | None = None,
    seed: int = 0,
) -> RunMap:
    """Places runs by how alike their agents' units are when all receive the observations of one recording.

    The similarity of two runs is linear CKA with its interval and its control, as of `mnb.similarity`. Their distance
    is `sqrt(2 - 2 CKA)`, that of the normalised Gram matrices. Positions in two dimensions are those of classical
    multidimensional scaling (Torgerson 1952). Where two runs differ most: with centred units X and Y of norm 1 and the
    rotation Q for which `|X Q - Y|` is least, the step with the largest `|x_t Q - y_t|`.

    Returns are those of the latest training episodes, or of the last greedy evaluation where more runs have that; a
    population's are those of its fittest member, whose units are compared. Runs whose agents of the site's group play
    against each other have none.

    Args:
        runs: of one environment, or their folders, at their last checkpoints; or members of a population, or players
            of a league, which have no return.
        recording: whose observations all runs receive; it may be of one of them.
        site: whose units are compared, such as `listener/actor/hidden_2`; numbers of units may differ.
        agent: whose observations; None: that of a site that belongs to a single agent.
        seed: of the intervals.
    Raises:
        AnalysisError: fewer than 2 runs, or one twice; or as `mnb.similarity`.
        RunError: a folder is not a run.
    """
    recording = opened_recording(recording)
    opened = [as_policy_source(run) for run in runs]
    names = distinct_names(run.path for run in opened)
    if len(set(names)) < max(2, len(names)):
        raise AnalysisError(f"a map needs at least 2 different runs; got {', '.join(names) or 'none'}")
    views = [View(recording, site, agent, policy_source=run) for run in opened]
    matrix = similarity_matrix(views, seed=seed)
    units = [view.open() for view in views]
    positions, explained = _positions(np.clip(2 - 2 * matrix.values, 0, None))
    episode, step = np.zeros((2, len(opened), len(opened)), dtype=int)
    for i, j in combinations(range(len(opened)), 2):
        row = int(np.argmax(_differences(units[i], units[j])))
        episode[i, j] = episode[j, i] = units[i].episode[row]
        step[i, j] = step[j, i] = units[i].t[row]
    statuses = [run.status() if isinstance(run, Run) else {} for run in opened]
    returns, mode = _comparable_returns([scores_of_group(status, group_of(site)) for status in statuses])
    return RunMap(
        runs=tuple(names),
        site=site,
        agent=units[0].agent,
        returns=returns,
        mode=mode,
        similarity=matrix.values,
        low=matrix.low,
        high=matrix.high,
        shuffled=matrix.shuffled,
        positions=positions,
        explained=explained,
        episode=episode,
        step=step,
        warnings=matrix.warnings,
    )


def _comparable_returns(scores: Sequence[Mapping[str, float]]) -> tuple[np.ndarray, str]:
    """`[run]`, of the mode in which most runs have a score, and the mode; NaN for the other runs."""
    mode = max((EXPLORING, GREEDY), key=lambda each: sum(each in known for known in scores))
    return np.array([known.get(mode, np.nan) for known in scores], dtype=float), mode


def _positions(squared: np.ndarray) -> tuple[np.ndarray, float]:
    """Positions `[point, 2]` for squared distances `[point, point]`, and the share of them that these show."""
    centre = np.eye(len(squared)) - 1 / len(squared)
    values, vectors = np.linalg.eigh(-centre @ squared @ centre / 2)
    values, vectors = np.clip(values[::-1], 0, None), vectors[:, ::-1]
    points = np.zeros((len(squared), 2))
    n = min(2, len(squared))
    points[:, :n] = vectors[:, :n] * np.sqrt(values[:n])
    return points, float(values[:2].sum() / values.sum()) if values.sum() > 0 else 1.0


def _differences(left: Units, right: Units) -> np.ndarray:
    """`[row]`: how far the units of two networks are apart at each time step, after the best rotation."""
    x, y = (_normalised(units.all().astype(float)) for units in (left, right))
    u, _, v = np.linalg.svd(x.T @ y, full_matrices=False)
    return np.asarray(np.linalg.norm(x @ (u @ v) - y, axis=1))


def _normalised(units: np.ndarray) -> np.ndarray:
    centred = units - units.mean(0)
    return np.asarray(centred / max(float(np.linalg.norm(centred)), 1e-12))
