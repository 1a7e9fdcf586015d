"""What a policy still does when a dictionary's reconstruction replaces the activations that it describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.analysis.results import Result, few_episodes_warning
from marlnb.analysis.stats.bootstrap import (
    Interval,
    bootstrap_weights,
    episode_index,
    episode_sums,
    percentile_interval,
)
from marlnb.errors import AnalysisError
from marlnb.models.hooks.sites import group_of, match_sites
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.values import checked_number

BATCH_ROWS = 4096
N_BOOTSTRAP = 1000
Replacement = Literal["none", "reconstruction", "mean"]


@dataclass(frozen=True, repr=False)
class BehaviourPreserved(Result):
    """What a policy still does when a site's activations are replaced, over the rows of a recording.

    Attributes:
        site: the dictionary's site.
        agents: whose activations are replaced.
        logits: share of the logits' variance that is preserved when the site holds the reconstruction, with its 95%
            bootstrap interval over episodes.
        logits_by_mean: the same when it holds its mean activation; high for a site that does not matter.
        logits_gain: the first minus the second.
        actions: share of rows at which the most likely allowed action stays the same with the reconstruction.
        actions_by_mean: the same with the mean activation.
        actions_gain: the first minus the second.
        n_rows: rows of acting agents.
        n_episodes: their episodes.
        warnings: reasons not to trust the result.
    """

    site: str
    agents: tuple[str, ...]
    logits: Interval
    logits_by_mean: Interval
    logits_gain: Interval
    actions: Interval
    actions_by_mean: Interval
    actions_gain: Interval
    n_rows: int
    n_episodes: int
    warnings: tuple[str, ...] = ()

    @property
    def logits_preserved(self) -> float:
        return self.logits.value

    @property
    def logits_preserved_by_mean(self) -> float:
        return self.logits_by_mean.value

    @property
    def actions_preserved(self) -> float:
        return self.actions.value

    @property
    def actions_preserved_by_mean(self) -> float:
        return self.actions_by_mean.value

    @property
    def verdict(self) -> str:
        """What the reconstruction preserves, and whether that is more than the site's mean does."""
        who, n = f"{self.site} of {', '.join(self.agents)}", f"{self.n_rows} rows of {self.n_episodes} episodes"
        numbers = (
            f"{_share(self.logits)} of the logits' variance (the mean activation {_share(self.logits_by_mean)}) and "
            f"{_share(self.actions)} of the most likely actions (the mean {_share(self.actions_by_mean)}); {n}."
        )
        if self.logits_gain.low > 0 and self.actions_gain.low > 0:
            return f"The reconstruction of {who} preserves {numbers}"
        return f"The reconstruction of {who} is not shown to preserve more than the mean activation does: {numbers}"

    def table(self) -> pd.DataFrame:
        """For logits and for actions: by the reconstruction, by the mean activation, and the difference."""
        of_logits = self.logits, self.logits_by_mean, self.logits_gain
        of_actions = self.actions, self.actions_by_mean, self.actions_gain
        lines = [
            {"what": what, "by": by, "preserved": interval.value, "low": interval.low, "high": interval.high}
            for what, intervals in (("logits", of_logits), ("actions", of_actions))
            for by, interval in zip(("reconstruction", "mean activation", "difference"), intervals)
        ]
        return pd.DataFrame(lines)


def _share(interval: Interval) -> str:
    value, low, high = (round(x, 2) + 0.0 for x in (interval.value, interval.low, interval.high))  # no "-0%"
    return f"{value:.0%} [{low:.0%}, {high:.0%}]"


def behaviour_preserved(
    dictionary: Dictionary,
    recording: RecordingLike,
    *,
    policies: Mapping[str, Policy] | None = None,
    max_rows: int = 20000,
    checkpoint: int | None = None,
    seed: int = 0,
) -> BehaviourPreserved:
    """Replaces the site's activations by their reconstruction and measures what happens to the logits.

        logits = 1 - sum over rows |l' - l|^2 / sum over rows |l - mean(l)|^2

    with l the policy's logits and l' those with the reconstruction; next to it the same with the mean activation.
    Units that the dictionary does not cover are set to their mean; for a dictionary from rest the mean is rest.

    Args:
        policies: by group; None: those of the checkpoint that made the recording.
        max_rows: spread evenly over the recording.
        checkpoint: iteration whose rows are read; required if the recording spans several.
        seed: of the bootstrap.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: the policy has no logits, the agents never acted, or several checkpoints and none chosen.
    """
    max_rows, seed = checked_number(max_rows, int, "max_rows", ge=1), checked_number(seed, int, "seed", ge=0)
    source = RowSource(opened_recording(recording), group_of(dictionary.site))
    checkpoint = source.resolve_checkpoint(checkpoint)
    policy = (source.policies(checkpoint) if policies is None else policies)[source.group]
    if policy.distribution is None:
        raise AnalysisError(f"{type(policy).__name__} has no network whose logits could be compared")
    source.check_recorded(policy.reads(critic=False))
    group = list(policy.group.agents)
    members = [group.index(name) for name in dictionary.agents]
    rows = source.rows(None, checkpoint)
    sample = rows.at(np.unique(np.linspace(0, len(rows) - 1, min(max_rows, len(rows))).astype(int)))
    logits = _logits_when_replaced(policy, dictionary, members, source, sample)
    if not len(logits.episode):
        raise AnalysisError(f"{', '.join(dictionary.agents)} never acted")
    numbers, index = episode_index(logits.episode)
    sums = episode_sums(_columns(logits, policy.distribution), index, len(numbers))
    of_logits, of_actions = _intervals(sums, seed)
    return BehaviourPreserved(
        site=dictionary.site,
        agents=tuple(dictionary.agents),
        logits=of_logits[0],
        logits_by_mean=of_logits[1],
        logits_gain=of_logits[2],
        actions=of_actions[0],
        actions_by_mean=of_actions[1],
        actions_gain=of_actions[2],
        n_rows=len(logits.episode),
        n_episodes=len(numbers),
        warnings=few_episodes_warning(len(numbers)),
    )


@dataclass(frozen=True)
class _ReplacedLogits:
    """Logits at the rows at which agents act, `[row, parameter]` each.

    Attributes:
        original: with the site's own activations.
        reconstruction: with their reconstruction.
        mean: with their mean.
        mask: `[row, action]`, allowed actions; None where all are.
        episode: `[row]`.
    """

    original: Tensor
    reconstruction: Tensor
    mean: Tensor
    mask: Tensor | None
    episode: np.ndarray


def _logits_when_replaced(
    policy: Policy, dictionary: Dictionary, members: list[int], source: RowSource, rows: Rows
) -> _ReplacedLogits:
    """The logits of the dictionary's agents with each replacement of the site's activations.

    Args:
        members: the agents' indices in their group.
    """
    parts: dict[Replacement, list[Tensor]] = {"none": [], "reconstruction": [], "mean": []}
    acted, masks = [], []
    for batch in source.batches(rows, BATCH_ROWS):
        acting = batch.acting[:, members].bool()
        acted.append(acting)
        masks += [] if batch.action_mask is None else [batch.action_mask[:, members][acting]]
        for replacement, of_batches in parts.items():
            with torch.no_grad(), _replaced(policy, dictionary, members, replacement):
                all_logits, _ = policy.logits(batch.observations[source.group], recurrent=batch.recurrent)
            of_batches.append(all_logits[:, members][acting])
    original, reconstruction, mean = (torch.cat(of_batches) for of_batches in parts.values())
    episode = rows.episode[np.nonzero(torch.cat(acted).numpy())[0]]
    return _ReplacedLogits(original, reconstruction, mean, torch.cat(masks) if masks else None, episode)


def _columns(logits: _ReplacedLogits, distribution: ActionDistribution) -> np.ndarray:
    """`[row, column]`, whose sums over rows are the columns of `_intervals`."""
    both = logits.reconstruction, logits.mean
    variance = (logits.original - logits.original.mean(0)).square().sum(-1)
    squares = [(each - logits.original).square().sum(-1) for each in both]
    masked = (distribution.mask(each, logits.mask) for each in (logits.original, *both))
    action, *replaced = (distribution.mode(each).action for each in masked)
    same = [_same(action, other) for other in replaced]
    return torch.stack([variance, *squares, torch.ones_like(variance), *same], dim=-1).double().numpy()


def _intervals(sums: np.ndarray, seed: int) -> tuple[list[Interval], list[Interval]]:
    """Shares with intervals over episodes, of the logits' variance and of the actions: preserved by the reconstruction,
    by the mean, and the difference.

    Args:
        sums: `[episode, column]`: of the logits' variance, of squared errors of both, of rows, and of equal actions.
    """
    weights = bootstrap_weights(len(sums), N_BOOTSTRAP, np.random.default_rng(seed))

    def shares(totals: np.ndarray) -> np.ndarray:
        variance, error, error_by_mean, n, same, same_by_mean = totals.T
        logits, by_mean = 1 - error / variance, 1 - error_by_mean / variance
        return np.stack([logits, by_mean, logits - by_mean, same / n, same_by_mean / n, (same - same_by_mean) / n])

    low, high = percentile_interval(shares(weights @ sums).T)
    intervals = [Interval(*map(float, each)) for each in zip(shares(sums.sum(axis=0)), low, high)]
    return intervals[:3], intervals[3:]


@contextmanager
def _replaced(policy: Policy, dictionary: Dictionary, members: list[int], replacement: Replacement) -> Iterator[None]:
    """Inside, the site of the dictionary's agents holds the replacement."""
    site = match_sites(policy.sites(), dictionary.site)[0]
    rows = [row for row in map(site.row_of, members) if row is not None]

    def replace(module: nn.Module, inputs: object, output: Tensor) -> Tensor | None:
        if replacement == "none":
            return None
        changed, x = output.clone(), output[..., rows, :]
        autoencoder = dictionary.autoencoder
        changed[..., rows, :] = autoencoder.mean if replacement == "mean" else autoencoder.decode(autoencoder(x))
        return changed

    with site.module.register_forward_hook(replace):
        yield


def _same(a: Tensor, b: Tensor) -> Tensor:
    """`[row]`, 1 where the actions are equal, else 0."""
    same = torch.isclose(a, b) if a.is_floating_point() else a == b
    return (same if same.ndim == 1 else same.all(-1)).float()
