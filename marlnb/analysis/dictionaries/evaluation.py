"""How well a dictionary does on episodes that were held out, and what it leaves of the behaviour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from marlnb.analysis.data.rows import RowSource
from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.errors import AnalysisError
from marlnb.models.hooks.sites import match_sites
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder
from marlnb.models.policies.policy import Policy

if TYPE_CHECKING:
    from marlnb.analysis.data.activation_stream import ActivationStream
    from marlnb.recording.file.reader import Recording

TOP_EPISODES = 16


def evaluate_dictionary(
    autoencoder: SparseAutoencoder,
    stream: ActivationStream,
    *,
    site: str,
    losses: list[float],
    from_rest: bool = False,
) -> Dictionary:
    """Measures a trained autoencoder on the episodes held out, and finds each feature's top episodes among all.

    Of an autoencoder of some of the site's units, the dictionary has the one of all its units that is the same.
    """
    n = autoencoder.n_features
    fired, total = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    missed = spread = active = 0.0
    powers = torch.zeros(4, n, dtype=torch.float64)
    seen = n_acted = 0
    best = _TopEpisodes(n)
    held_out = np.zeros(len(stream.rows), bool)
    held_out[stream.held_out] = True
    autoencoder.eval()
    with torch.no_grad():
        for rows, values, acting in stream.blocks(stream.rows.index):
            features = autoencoder(values)
            absent = torch.from_numpy(~acting)[..., None]
            best.add(features.masked_fill(absent, -1.0), stream.rows.episode[rows], stream.rows.t[rows])
            f = features[torch.from_numpy(acting)]
            fired += (f > 0).double().sum(0)
            total += f.double().sum(0)
            n_acted += len(f)
            along = (autoencoder.normalised(values[torch.from_numpy(acting)]) @ autoencoder.decoder.T).double()
            powers += torch.stack([along.pow(k).sum(0) for k in (1, 2, 3, 4)])
            test = torch.from_numpy(acting & held_out[rows][:, None])
            x, f = values[test], features[test]
            missed += float((x - autoencoder.decode(f)).double().square().sum())
            spread += float((x - autoencoder.mean).double().square().sum())
            active += float((f > 0).sum())
            seen += len(x)
    if not seen:
        raise AnalysisError(f"{', '.join(stream.agents)} never acted in the held-out episodes")
    density = (fired / n_acted).numpy()
    units = tuple(stream.units or ())
    if units:
        autoencoder = autoencoder.widened(units, stream.of_all_units().moments()[0])
    return Dictionary(
        autoencoder=autoencoder.requires_grad_(False),
        site=site,
        agents=stream.agents,
        density=density,
        mean_active=np.divide(total.numpy(), fired.numpy(), out=np.full(n, np.nan), where=density > 0),
        explained=1 - missed / spread,
        active=active / seen,
        n_train=n_acted - seen,
        n_held_out=seen,
        losses=tuple(losses),
        top_value=best.value,
        top_episode=best.episode,
        top_t=best.t,
        top_agent=best.agent,
        origin=stream.source.origin(),
        kurtosis=_excess_kurtosis(powers / n_acted),
        units=units,
        from_rest=from_rest,
    )


def _excess_kurtosis(moments: Tensor) -> np.ndarray:
    """`[feature]`, of moments `[1..4, feature]` around zero; NaN where nothing varies."""
    mean, second, third, fourth = moments.numpy()
    variance = second - mean**2
    central = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4
    return np.divide(central, variance**2, out=np.full(len(mean), np.nan), where=variance > 1e-12) - 3


class _TopEpisodes:
    """The largest value of each feature in an episode, the TOP_EPISODES best kept; blocks come in the file's order."""

    def __init__(self, n_features: int) -> None:
        shape = (n_features, TOP_EPISODES)
        self.value = np.full(shape, -1.0, np.float32)
        self.episode, self.t, self.agent = (np.full(shape, -1, np.int64) for _ in range(3))

    def add(self, features: Tensor, episode: np.ndarray, t: np.ndarray) -> None:
        """features `[row, agent, feature]`; episode, t `[row]`."""
        for number in np.unique(episode):
            here = np.flatnonzero(episode == number)
            part = features[here[0] : here[-1] + 1]
            largest, place = part.flatten(0, 1).max(0)
            row, agent = place.numpy() // part.shape[1], place.numpy() % part.shape[1]
            self._enter(largest.numpy(), int(number), t[here][row], agent)

    def _enter(self, value: np.ndarray, episode: int, t: np.ndarray, agent: np.ndarray) -> None:
        same = self.episode == episode  # an episode that goes on from the block before
        slot = np.where(same.any(1), same.argmax(1), self.value.argmin(1))
        feature = np.arange(len(value))
        better = (value > self.value[feature, slot]) & (value > 0)
        at = feature[better], slot[better]
        self.value[at], self.episode[at] = value[better], episode
        self.t[at], self.agent[at] = t[better], agent[better]
        order = np.argsort(-self.value, axis=1, kind="stable")
        for column in (self.value, self.episode, self.t, self.agent):
            column[...] = np.take_along_axis(column, order, 1)


@dataclass(frozen=True)
class BehaviourKept:
    """What a policy still does when a site's activations are replaced, over the rows of a recording.

    Attributes:
        logits_kept: share of the logits' variance kept when the site holds what the features express; by_mean: when it
            holds the mean activation alone (a site that does not matter keeps much even so).
        actions_kept, actions_kept_by_mean: share of rows at which the most likely action stays the same.
    """

    logits_kept: float
    logits_kept_by_mean: float
    actions_kept: float
    actions_kept_by_mean: float


def behaviour_kept(
    dictionary: Dictionary, recording: Recording, *, policies: Mapping[str, Policy] | None = None, rows: int = 20000
) -> BehaviourKept:
    """Puts the reconstruction in the place of the site's activations and looks what becomes of the logits.

    Units that the dictionary is not about are then at their mean; for the mean of a dictionary from rest stands rest.

    Args:
        policies: by group; None: those of the checkpoint that made the recording.
        rows: at most so many, spread evenly over the recording.
    Raises:
        AnalysisError: the policy has no logits, or the agents never acted.
    """
    source = RowSource(recording, dictionary.site.split("/")[0])
    policy = (source.policies() if policies is None else policies)[source.group]
    if policy.distribution is None:
        raise AnalysisError(f"{type(policy).__name__} has no network whose logits could be compared")
    group = list(policy.group.agents)
    members = [group.index(name) for name in dictionary.agents]
    everything = source.rows(None)
    chosen = np.unique(np.linspace(0, len(everything) - 1, min(rows, len(everything))).astype(int))
    picked = type(everything)(everything.index[chosen], everything.episode[chosen], everything.t[chosen])
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for moments in source.batches(picked, 4096):
        acting = moments.acting[:, members].bool()
        outputs = []
        for content in ("own", "features", "mean"):
            with torch.no_grad(), _holding(policy, dictionary, members, content):
                logits, _ = policy.logits(moments.observations[source.group], recurrent=moments.recurrent)
            outputs.append(logits[:, members][acting])
        found.append((outputs[0], outputs[1], outputs[2]))
    own, features, mean = (torch.cat(parts) for parts in zip(*found))
    if not len(own):
        raise AnalysisError(f"{', '.join(dictionary.agents)} never acted")
    spread = (own - own.mean(0)).square().sum()
    best = policy.distribution.mode(own).action
    return BehaviourKept(
        logits_kept=float(1 - (features - own).square().sum() / spread),
        logits_kept_by_mean=float(1 - (mean - own).square().sum() / spread),
        actions_kept=_agreement(best, policy.distribution.mode(features).action),
        actions_kept_by_mean=_agreement(best, policy.distribution.mode(mean).action),
    )


@contextmanager
def _holding(policy: Policy, dictionary: Dictionary, members: list[int], content: str) -> Iterator[None]:
    """Inside, the site of the dictionary's agents holds its own activations, their reconstruction or the mean."""
    site = match_sites(policy.sites(), dictionary.site)[0]
    places = [row for row in map(site.row_of, members) if row is not None]

    def put(module: nn.Module, inputs: object, output: Tensor) -> Tensor | None:
        if content == "own":
            return None
        changed, x = output.clone(), output[..., places, :]
        autoencoder = dictionary.autoencoder
        changed[..., places, :] = autoencoder.mean if content == "mean" else autoencoder.decode(autoencoder(x))
        return changed

    handle = site.module.register_forward_hook(put)
    try:
        yield
    finally:
        handle.remove()


def _agreement(one: Tensor, other: Tensor) -> float:
    same = torch.isclose(one, other) if one.is_floating_point() else one == other
    return float((same if same.ndim == 1 else same.all(-1)).float().mean())
