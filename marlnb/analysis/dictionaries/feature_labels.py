"""Which features of a dictionary go with a label, beyond what is given.

With a feature f `[row]`, the label's bins as columns L and what is given as columns G, both f and L are regressed on G.
The share is that of the residuals: `share = |P_L f|² / |f|²`, the squared partial correlation (multiple, for several
bins). With nothing given it is eta squared.

Source: Frisch and Waugh 1933 (partial regression); Kennedy 1995, Randomization Tests in Econometrics (residuals of the
label are permuted).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marlnb.analysis.data.duplicate_episodes import duplicate_episode_warnings
from marlnb.analysis.data.given import Given, given_columns
from marlnb.analysis.data.labels import Label
from marlnb.analysis.data.row_condition import Condition, rows_name, rows_note, rows_where
from marlnb.analysis.data.row_values import RowValues, row_values
from marlnb.analysis.data.rows import Rows
from marlnb.analysis.data.views import Units, View
from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.analysis.dictionaries.feature_labels_result import FeatureLabels
from marlnb.analysis.representations.bins import binned
from marlnb.analysis.results import few_episodes_warning
from marlnb.analysis.stats.bootstrap import (
    bootstrap_weights,
    checked_resampling,
    episode_index,
    episode_sums,
    percentile_interval,
)
from marlnb.analysis.stats.corrections import max_statistic
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.errors import AnalysisError
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.values import checked_number

MIN_LABEL_LEFT = 1e-6
"""Share of the label's variance that must be left beyond what is given."""


def label_features(
    dictionary: Dictionary,
    recording: RecordingLike,
    label: Label,
    *,
    agent: str | None = None,
    rows: Condition | None = None,
    given: Given | None = None,
    bins: int = 10,
    checkpoint: int | None = None,
    max_rows: int = 20_000,
    n_shuffles: int = 100,
    n_bootstrap: int = 200,
    seed: int = 0,
) -> FeatureLabels:
    """How much of each feature goes with a label, next to labels of other episodes, and beyond what is given.

    Two labels that go together, as a goal and the action that it demands, go with the same features. `given=` names
    what to take as known already: only the part of the label that this does not predict counts.

    Args:
        label: as in `decode`. Whole numbers and booleans are classes; a quantity is binned as in `tuning`.
        agent: one of the dictionary's agents; None if it has a single one.
        rows: a condition, such as "t < 5 and action == 'left'"; None: all rows at which the agent acts.
        given: labels, fields, observed features or 'action' that are held fixed; None: nothing.
        bins: for a quantity.
        checkpoint: iteration whose rows are read; required if a recording spans several.
        max_rows: drawn at random from more.
        n_shuffles: permutations of the labels over episodes.
        n_bootstrap: bootstrap samples of the episodes, for the intervals.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: several agents and none chosen; an unknown label; a label that never varies in these rows, or
            that is determined by what is given.
    """
    recording = opened_recording(recording)
    bins, max_rows = checked_number(bins, int, "bins", ge=2), checked_number(max_rows, int, "max_rows", ge=1)
    n_shuffles, n_bootstrap, seed = checked_resampling(n_shuffles, n_bootstrap, seed)
    chosen_agent = dictionary.chosen_agent(agent)
    units = View(recording, dictionary.site, chosen_agent, checkpoint=checkpoint).open()
    values = row_values(units, label)
    own_rows = Rows(units.index, units.episode, units.t)
    fixed = given_columns(units.source, own_rows, given)
    usable = rows_where(units.source, own_rows, rows)[:, units.agent_index] & values.known
    if fixed is not None:
        usable &= fixed.known[:, units.agent_index]
    missing = values.missing_labels(units.agent)
    rng = np.random.default_rng(seed)
    positions = _drawn(np.flatnonzero(usable), max_rows, rng)
    _check_varies(values, positions, units)
    episode, t = units.episode[positions], units.t[positions]
    label_bins = binned(values.at(positions), bins)
    features = dictionary.features(recording, units.index[positions])
    f = features[:, dictionary.agents.index(chosen_agent)].astype(np.float64)
    indicators = label_bins.indicators
    constant = np.ones((len(f), 1))
    alone = _shares(f, indicators, constant, episode, t, n_shuffles, n_bootstrap, rng)
    beyond = alone
    if fixed is not None:
        columns = np.concatenate([constant, fixed.values[positions, units.agent_index]], axis=1)
        beyond = _shares(f, indicators, columns, episode, t, n_shuffles, n_bootstrap, rng)
    mean_in_bins = np.stack([f[label_bins.index == b].mean(axis=0) for b in range(len(label_bins))])
    n_episodes = len(np.unique(episode))
    return FeatureLabels(
        site=dictionary.site,
        agent=chosen_agent,
        label=values.name,
        given="" if fixed is None else str(fixed),
        bins=label_bins.names,
        share=beyond.share,
        low=beyond.low,
        high=beyond.high,
        shuffled=beyond.shuffled,
        p_value=beyond.p_value,
        share_alone=alone.share,
        p_alone=alone.p_value,
        preferred=mean_in_bins.argmax(axis=0),
        n_episodes=n_episodes,
        n_rows=len(positions),
        n_shuffles=n_shuffles,
        warnings=(
            *few_episodes_warning(n_episodes),
            *duplicate_episode_warnings(recording, episode),
            *missing.warnings,
            *EpisodeShuffle(episode, t, label_bins.index).warnings(values.name, label_bins.index, label_bins.names),
        ),
        notes=(*rows_note(rows_name(rows)), *missing.notes),
    )


def _drawn(positions: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    return positions if len(positions) <= n else np.sort(rng.choice(positions, n, replace=False))


def _check_varies(values: RowValues, positions: np.ndarray, units: Units) -> None:
    if not len(positions) or np.ptp(values.values[positions]) == 0:
        raise AnalysisError(
            f"{values.name!r} never varies over the {len(positions)} rows of {units.agent} that are left: no feature "
            "can go with it"
        )


@dataclass(frozen=True)
class _Shares:
    """How much of each feature goes with a label, each `[feature]`.

    Attributes:
        share: of the feature.
        low: low end of its interval over episodes.
        high: high end of its interval over episodes.
        shuffled: mean share under shuffles.
        p_value: corrected for the number of features.
    """

    share: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shuffled: np.ndarray
    p_value: np.ndarray


def _shares(
    f: np.ndarray,
    label: np.ndarray,
    given: np.ndarray,
    episode: np.ndarray,
    t: np.ndarray,
    n_shuffles: int,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> _Shares:
    """The shares of features, and what chance gives.

    Args:
        f: `[row, feature]`.
        label: `[row, bin]`, indicators.
        given: `[row, column]`, with a constant.
        episode: `[row]`.
        t: `[row]`, the time step.
    Raises:
        AnalysisError: what is given determines the label.
    """
    f, rest = _residual(f, given), _residual(label, given)
    left = (rest**2).sum() / ((label - label.mean(axis=0)) ** 2).sum()
    if left < MIN_LABEL_LEFT:
        raise AnalysisError("what is given determines the label, so that nothing of it is left; give less")
    shuffle = EpisodeShuffle(episode, t, rest)
    permuted = [shuffle.rows(shuffle.draw(rng)) for _ in range(n_shuffles)]
    rows = np.arange(len(f))
    shares = _shares_of_each(f, rest, [rows, *permuted], np.ones(len(f)))
    weighted = _shares_of_each(f, rest, [rows, *permuted], shuffle.weight) if shuffle.is_permutation else shares
    low, high = percentile_interval(_resampled_shares(f, rest, episode, n_bootstrap, rng))
    p_value = max_statistic(weighted[:, 0], weighted[:, 1:])
    return _Shares(shares[:, 0], low, high, shares[:, 1:].mean(axis=1), p_value)


def _shares_of_each(f: np.ndarray, label: np.ndarray, rows: Sequence[np.ndarray], weight: np.ndarray) -> np.ndarray:
    """`[feature, shuffle]`, shares of features `[row, feature]` with the labels `[row, bin]` of some rows instead.

    Args:
        f: residuals.
        label: residuals.
        rows: of each shuffle `[row]`, whose labels the rows have.
        weight: `[row]`.
    """
    weight = weight[:, None]
    f = f - (weight * f).mean(axis=0)
    shares = []
    for others in rows:
        permuted = label[others]
        permuted -= (weight * permuted).mean(axis=0)
        weighted = weight * permuted
        shares.append(_share_of(f.T @ weighted, permuted.T @ weighted, (weight * f**2).sum(axis=0)))
    return np.stack(shares, axis=1)


def _resampled_shares(
    f: np.ndarray, label: np.ndarray, episode: np.ndarray, n_bootstrap: int, rng: np.random.Generator
) -> np.ndarray:
    """`[sample, feature]`, shares in bootstrap samples of episodes `[row]`; other arguments as of `_shares_of_each`."""
    numbers, index = episode_index(episode)
    n = len(numbers)
    weights = bootstrap_weights(n, n_bootstrap, rng)
    crossed = np.stack([episode_sums(f * column[:, None], index, n) for column in label.T], axis=2)
    squares = episode_sums(f**2, index, n)
    products = episode_sums(label[:, :, None] * label[:, None, :], index, n)
    return np.stack(
        [_share_of(np.tensordot(w, crossed, 1), np.tensordot(w, products, 1), w @ squares) for w in weights]
    )


def _residual(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What a linear model of x `[row, column]` leaves of y `[row, ...]`."""
    return np.asarray(y - x @ np.linalg.lstsq(x, y, rcond=None)[0])


def _share_of(crossed: np.ndarray, products: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """`c' A⁺ c / s`, `[feature]`: c `[feature, bin]`, A `[bin, bin]`, s `[feature]`; 0 for one that never varies."""
    explained = ((crossed @ np.linalg.pinv(products, rcond=MIN_LABEL_LEFT, hermitian=True)) * crossed).sum(axis=1)
    return np.where(squares > 1e-12, explained / np.where(squares > 1e-12, squares, 1), 0.0)
