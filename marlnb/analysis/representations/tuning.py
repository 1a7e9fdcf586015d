"""Tuning: what single units respond to, with intervals over episodes and corrected against chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

from marlnb.analysis.data.duplicate_episodes import duplicate_episode_warnings
from marlnb.analysis.data.given import Given, given_columns
from marlnb.analysis.data.labels import Label
from marlnb.analysis.data.missing_labels import MissingLabels
from marlnb.analysis.data.policy_activations import policy_activations, untrained_policy
from marlnb.analysis.data.row_condition import Condition, rows_name, rows_note, rows_where
from marlnb.analysis.data.row_values import RowValues, row_values
from marlnb.analysis.data.rows import Rows
from marlnb.analysis.data.views import Units, View
from marlnb.analysis.representations.bins import Bins, binned
from marlnb.analysis.representations.eta_squared import eta_squared, eta_squared_of_each, resampled_eta_squared
from marlnb.analysis.representations.tuning_result import Tuning, UntrainedTuning
from marlnb.analysis.results import ALPHA, few_episodes_warning
from marlnb.analysis.stats.bootstrap import (
    bootstrap_means,
    bootstrap_weights,
    checked_resampling,
    episode_index,
    percentile_interval,
)
from marlnb.analysis.stats.corrections import max_statistic
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.analysis.stats.given_patterns import residual
from marlnb.display.formatting import count
from marlnb.errors import AnalysisError
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.values import checked_number

MIN_EPISODES_PER_BIN = 5
N_UNTRAINED = 19
"""One more random network exceeds so many with a probability of 1 / 20."""


@dataclass(frozen=True)
class TunedRows:
    """The rows at which an agent's units are compared with a label.

    Attributes:
        positions: among the units' rows.
        values: of the label.
        given: `[row, column]`, what is taken as known; None: nothing.
        given_names: of it.
        missing: rows without a label.
    """

    positions: np.ndarray
    values: RowValues
    given: np.ndarray | None
    given_names: tuple[str, ...]
    missing: MissingLabels

    @staticmethod
    def of(units: Units, label: Label, condition: Condition | None, given: Given | None) -> TunedRows:
        """The rows that meet the condition and at which the label, and what is given, are known.

        Raises:
            AnalysisError: the label never varies over them; unknown names.
        """
        rows = Rows(units.index, units.episode, units.t)
        selected = rows_where(units.source, rows, condition)[:, units.agent_index]
        values, columns = row_values(units, label), given_columns(units.source, rows, given)
        known = values.known if columns is None else values.known & columns.known[:, units.agent_index]
        at = np.flatnonzero(selected & known)
        chosen = values.at(at)
        if not len(at) or np.ptp(chosen.values) == 0:
            raise AnalysisError(
                f"{values.name!r} never varies over {units.agent}'s {len(at)} rows: no unit can be tuned to it"
            )
        missing = values.at(selected).missing_labels(units.agent)
        if columns is None:
            return TunedRows(at, chosen, None, (), missing)
        return TunedRows(at, chosen, columns.values[at, units.agent_index], columns.names, missing)

    def without_given(self, x: np.ndarray) -> np.ndarray:
        """What a linear regression on what is given leaves of units `[row, unit]`, around their means."""
        x = x.astype(np.float64)
        return x if self.given is None else residual(x, self.given) + x.mean(axis=0)

    def check_rest(self, x: np.ndarray, bins: Bins, who: str) -> None:
        """Raises AnalysisError: nothing is left of the units `[row, unit]`, or of the bins."""
        given = ", ".join(self.given_names)
        if self.given is not None and not residual(bins.indicators, self.given).any():
            raise AnalysisError(
                f"given {given}: it determines {self.values.name!r}, so nothing of it is left; give less"
            )
        if np.ptp(x, axis=0).max() == 0:
            raise AnalysisError(
                f"given {given}, nothing is left of {who}: its units are functions of it"
                if given
                else f"{who} never varies: it is not tuned to anything"
            )


@dataclass(frozen=True)
class BinnedRows:
    """Rows in the bins of a label, with the shuffles and bootstrap samples that are the same for all units.

    Attributes:
        bins: the bin of each row.
        shuffle: gives whole episodes the labels of others.
        shuffled: bin indices `[row]` of each shuffle.
        episode: `[row]`, each row's index in `weights`.
        weights: `[sample, episode]`, of the bootstrap.
    """

    bins: Bins
    shuffle: EpisodeShuffle
    shuffled: tuple[np.ndarray, ...]
    episode: np.ndarray
    weights: np.ndarray

    @staticmethod
    def draw(
        bins: Bins, episode: np.ndarray, t: np.ndarray, n_shuffles: int, n_bootstrap: int, seed: int
    ) -> BinnedRows:
        """Draws the bootstrap samples, then the shuffles; episode: `[row]`, the episode's number; t: `[row]`."""
        rng = np.random.default_rng(seed)
        numbers, index = episode_index(episode)
        weights = bootstrap_weights(len(numbers), n_bootstrap, rng)
        shuffle = EpisodeShuffle(episode, t, bins.index)
        shuffled = tuple(shuffle.permute(bins.index, rng) for _ in range(n_shuffles))
        return BinnedRows(bins, shuffle, shuffled, index, weights)

    @property
    def in_bins(self) -> list[np.ndarray]:
        """By bin, `[row]` bool."""
        return [self.bins.index == k for k in range(len(self.bins))]

    @property
    def n_rows(self) -> np.ndarray:
        """`[bin]`."""
        return np.bincount(self.bins.index, minlength=len(self.bins))

    @property
    def n_episodes(self) -> int:
        return self.weights.shape[1]

    @property
    def episodes_per_bin(self) -> np.ndarray:
        """`[bin]`, in how many episodes each occurs."""
        return np.array([len(np.unique(self.episode[rows])) for rows in self.in_bins])

    def curves(self, x: np.ndarray) -> np.ndarray:
        """Mean activation in each bin, its low and its high end, `[3, bin, unit]`, of units `[row, unit]`."""
        of_bins = [bootstrap_means(x[rows], self.episode[rows], self.weights) for rows in self.in_bins]
        return np.stack(of_bins, axis=1)

    def strength(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Eta² of units `[row, unit]`, and its mean under shuffles, each `[unit]`."""
        strength, *null = eta_squared_of_each(x, [self.bins.index, *self.shuffled], len(self.bins))
        return strength, np.mean(null, axis=0)

    def p_value(self, x: np.ndarray) -> np.ndarray:
        """`[unit]`, of eta² of the ranks of units `[row, unit]`, against the strongest unit of each shuffle."""
        labels = [self.bins.index, *self.shuffled]
        strength, *null = eta_squared_of_each(rankdata(x, axis=0), labels, len(self.bins), self.shuffle.weight)
        return max_statistic(strength, np.stack(null, axis=1))


def tuning(
    recording: RecordingLike,
    *,
    site: str,
    label: Label,
    agent: str | None = None,
    bins: int = 10,
    episodes: Sequence[int] | None = None,
    rows: Condition | None = None,
    given: Given | None = None,
    checkpoint: int | None = None,
    n_shuffles: int = 100,
    n_bootstrap: int = 200,
    seed: int = 0,
) -> Tuning:
    """Mean activation of each unit in each class of a label, or in bins of a quantity that hold equally many rows.

    A unit's strength is `eta² = between-bin variance / total variance`. It is above 0 by chance, more so for labels
    that change slowly, so each is reported next to its mean when whole episodes are given the labels of others.
    p-values are of eta² of the activations' ranks, against the most strongly tuned unit of each shuffle. Ranks are used
    since a unit that is rarely but strongly active has a heavier tail than others, and would mask them.

    Random features of an observation are tuned to it too, in some networks more than in others. 19 networks of the same
    architecture with random weights therefore see the same time steps, and the result says whether the trained
    network's strongest unit is tuned more than any of theirs.

    Args:
        label: a label, `action`, `t`, a feature that the agent observes, (agent, field), an array or a function of the
            recording, as in `decode`. Whole numbers and booleans are classes.
        agent: whose units; None if the site has a single agent.
        bins: for a quantity.
        episodes: numbers of the episodes to use, or a mask of all episodes; None for all.
        rows: which rows to use: a condition such as "goal == 'red' and t >= 5", or a bool array; None for all.
        given: what is taken as known already: labels, "action", observed features, or a list of these. Curves and
            strengths are then those of what a linear regression on it leaves of the units, around their means.
        checkpoint: iteration whose rows are read; required if a recording spans several.
        n_shuffles: permutations of the labels over episodes.
        n_bootstrap: bootstrap samples of the episodes, for the intervals.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: unknown label or agent; a label or units that never vary, or of which what is given leaves
            nothing; more than 32 classes; an unknown name in `rows` or `given`, or no row that meets the condition.
    Source: Kruskal and Wallis 1952, for the statistic on ranks; Westfall and Young 1993, section 2.3, for correction
        by the maximum, which needs statistics with similar tails.
    """
    recording = opened_recording(recording)
    bins = checked_number(bins, int, "bins", ge=2)
    n_shuffles, n_bootstrap, seed = checked_resampling(n_shuffles, n_bootstrap, seed)
    chosen = None if episodes is None else tuple(recording.episode_numbers(episodes))
    units = View(recording, site, agent, checkpoint=checkpoint, episodes=chosen).open()
    tuned_rows = TunedRows.of(units, label, rows, given)
    values, at = tuned_rows.values, tuned_rows.positions
    episode, t = units.episode[at], units.t[at]
    x = tuned_rows.without_given(units.all()[at])
    label_bins = binned(values, bins)
    tuned_rows.check_rest(x, label_bins, units.name)
    binned_rows = BinnedRows.draw(label_bins, episode, t, n_shuffles, n_bootstrap, seed)
    untrained_x, no_control = _untrained_units(units, site, chosen, checkpoint, tuned_rows, label_bins, seed)
    with threadpool_limits(1):  # many small products: more threads wait for each other
        curve, low, high = binned_rows.curves(x)
        strength, shuffled = binned_rows.strength(x)
        p_value = binned_rows.p_value(x)
        strongest = x[:, np.lexsort((-strength, p_value >= ALPHA))[0]]  # of the tuned units, as in the verdict
        untrained = None if untrained_x is None else _untrained_tuning(untrained_x, strongest, binned_rows)
    return Tuning(
        site=site,
        agent=units.agent,
        agents=units.agents,
        label=values.name,
        is_class=values.is_class,
        bins=binned_rows.bins.names,
        centres=binned_rows.bins.centres,
        curve=curve,
        low=low,
        high=high,
        strength=strength,
        shuffled=shuffled,
        p_value=p_value,
        count=binned_rows.n_rows,
        episodes=binned_rows.episodes_per_bin,
        mean=x.mean(axis=0),
        scale=x.std(axis=0),
        n_shuffles=n_shuffles,
        n_episodes=binned_rows.n_episodes,
        untrained=untrained,
        warnings=(
            *few_episodes_warning(binned_rows.n_episodes),
            *_thin_bins(binned_rows),
            *duplicate_episode_warnings(recording, episode),
            *tuned_rows.missing.warnings,
            *binned_rows.shuffle.warnings(values.name, label_bins.index, label_bins.names),
        ),
        notes=(*rows_note(rows_name(rows)), *tuned_rows.missing.notes, *no_control),
        given="" if tuned_rows.given is None else ", ".join(tuned_rows.given_names),
        rows=rows_name(rows),
        checkpoint=units.source.resolve_checkpoint(checkpoint),
    )


def _thin_bins(rows: BinnedRows) -> Iterator[str]:
    """A warning about each bin that occurs in few episodes."""
    for name, n_episodes in zip(rows.bins.names, rows.episodes_per_bin):
        if n_episodes < MIN_EPISODES_PER_BIN:
            yield f"{name!r} occurs in only {count(n_episodes, 'episode')}"


def _untrained_units(
    units: Units,
    site: str,
    episodes: tuple[int, ...] | None,
    checkpoint: int | None,
    tuned_rows: TunedRows,
    bins: Bins,
    seed: int,
) -> tuple[np.ndarray | None, list[str]]:
    """Activations `[row, unit]` of that of several untrained networks whose best unit is tuned most; or None and the
    reason why there is none."""
    source = units.source
    rows = source.rows(episodes, source.resolve_checkpoint(checkpoint))
    at = np.flatnonzero(np.isin(rows.index, units.index))[tuned_rows.positions]
    best, best_strength = None, -1.0
    for number in range(N_UNTRAINED):
        policy, reasons = untrained_policy(source, site, rows, seed * N_UNTRAINED + number)
        if policy is None:
            return None, reasons
        if site not in [candidate.name for candidate in policy.sites()]:
            return None, [f"no untrained network to compare with: {site} is not among its sites"]
        x = tuned_rows.without_given(policy_activations(source, policy, site, rows)[at, units.agent_index])
        strength = float(eta_squared(x, bins.index, len(bins)).max())
        if strength > best_strength:
            best, best_strength = x, strength
    return best, []


def _untrained_tuning(x: np.ndarray, strongest: np.ndarray, rows: BinnedRows) -> UntrainedTuning:
    """Tuning of an untrained network's units, next to the trained network's most strongly tuned unit.

    Args:
        x: `[row, unit]`, of the untrained network whose best unit is tuned most.
        strongest: `[row]`, of the trained network's most strongly tuned unit.
    """
    bins = rows.bins
    n_bins, strength = len(bins), eta_squared(x, bins.index, len(bins))
    p_value = rows.p_value(x)
    pair = np.column_stack([strongest, x[:, strength.argmax()]])
    trained, untrained = resampled_eta_squared(pair, bins.index, n_bins, rows.episode, rows.weights).T
    low, high = percentile_interval((trained - untrained)[:, None])
    gain = float(eta_squared(strongest[:, None], bins.index, n_bins)[0] - strength.max())
    return UntrainedTuning(N_UNTRAINED, strength, int((p_value < ALPHA).sum()), gain, float(low[0]), float(high[0]))
