"""How well a dictionary reconstructs held-out episodes, and how much of the behaviour it preserves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.errors import AnalysisError
from marlnb.models.hooks.sites import match_sites
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder
from marlnb.models.policies.policy import Policy

if TYPE_CHECKING:
    from marlnb.analysis.data.activation_stream import ActivationStream
    from marlnb.recording.file.reader import Recording

N_TOP_EPISODES = 16
BATCH_ROWS = 4096
Replacement = Literal["none", "reconstruction", "mean"]


def evaluate_dictionary(
    autoencoder: SparseAutoencoder, stream: ActivationStream, *, site: str, losses: list[float], from_rest: bool = False
) -> Dictionary:
    """Evaluates a trained autoencoder on the held-out episodes, and finds each feature's top episodes among all.

    `explained = 1 - sum |x - x̂|² / sum |x - mean|²`. An autoencoder of some of the site's units is widened to all of
    them; the result reads and writes the same units as before.
    """
    n = autoencoder.n_features
    fired, total = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    error = variance = n_active = 0.0
    powers = torch.zeros(4, n, dtype=torch.float64)
    n_tested = n_acted = 0
    top = _TopEpisodes(n)
    held_out = np.zeros(len(stream.rows), bool)
    held_out[stream.held_out] = True
    autoencoder.eval()
    with torch.no_grad():
        for rows, values, acting in stream.blocks(stream.rows.index):
            features, acted = autoencoder(values), torch.from_numpy(acting)
            top.add(features.masked_fill(~acted[..., None], -1.0), stream.rows.episode[rows], stream.rows.t[rows])
            f = features[acted]
            fired += (f > 0).double().sum(0)
            total += f.double().sum(0)
            n_acted += len(f)
            projection = (autoencoder.normalised(values[acted]) @ autoencoder.decoder.T).double()
            powers += torch.stack([projection.pow(k).sum(0) for k in (1, 2, 3, 4)])
            tested = torch.from_numpy(acting & held_out[rows][:, None])
            x, f = values[tested], features[tested]
            error += float((x - autoencoder.decode(f)).double().square().sum())
            variance += float((x - autoencoder.mean).double().square().sum())
            n_active += float((f > 0).sum())
            n_tested += len(x)
    if not n_tested:
        raise AnalysisError(f"{', '.join(stream.agents)} never acted in the held-out episodes")
    density = (fired / n_acted).numpy()
    units = tuple(stream.units or ())
    if units:
        autoencoder = autoencoder.widened(units, stream.with_all_units().mean_and_scale()[0])
    return Dictionary(
        autoencoder=autoencoder.requires_grad_(False),
        site=site,
        agents=stream.agents,
        density=density,
        mean_active=np.divide(total.numpy(), fired.numpy(), out=np.full(n, np.nan), where=density > 0),
        explained=1 - error / variance,
        active=n_active / n_tested,
        n_train=n_acted - n_tested,
        n_held_out=n_tested,
        losses=tuple(losses),
        top_value=top.value,
        top_episode=top.episode,
        top_t=top.t,
        top_agent=top.agent,
        origin=stream.source.origin(),
        kurtosis=_excess_kurtosis(powers / n_acted),
        units=units,
        from_rest=from_rest,
    )


def _excess_kurtosis(moments: Tensor) -> np.ndarray:
    """`E[(x - m)⁴] / Var(x)² - 3`, `[feature]`, from moments `[1..4, feature]` around zero; NaN if x never varies."""
    mean, second, third, fourth = moments.numpy()
    variance = second - mean**2
    central = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4
    return np.divide(central, variance**2, out=np.full(len(mean), np.nan), where=variance > 1e-12) - 3


class _TopEpisodes:
    """The N_TOP_EPISODES largest values of each feature, at most one for each episode.

    Blocks must be added in the file's order, since an episode may continue in the next block.
    """

    def __init__(self, n_features: int) -> None:
        shape = (n_features, N_TOP_EPISODES)
        self.value = np.full(shape, -1.0, np.float32)
        self.episode, self.t, self.agent = (np.full(shape, -1, np.int64) for _ in range(3))

    def add(self, features: Tensor, episode: np.ndarray, t: np.ndarray) -> None:
        """features `[row, agent, feature]`; episode, t `[row]`."""
        for number in np.unique(episode):
            rows = np.flatnonzero(episode == number)
            of_episode = features[rows[0] : rows[-1] + 1]
            largest, index = of_episode.flatten(0, 1).max(0)
            row, agent = index.numpy() // of_episode.shape[1], index.numpy() % of_episode.shape[1]
            self._insert(largest.numpy(), int(number), t[rows][row], agent)

    def _insert(self, value: np.ndarray, episode: int, t: np.ndarray, agent: np.ndarray) -> None:
        same_episode = self.episode == episode  # of the previous block
        slot = np.where(same_episode.any(1), same_episode.argmax(1), self.value.argmin(1))
        feature = np.arange(len(value))
        better = (value > self.value[feature, slot]) & (value > 0)
        cell = feature[better], slot[better]
        self.value[cell], self.episode[cell] = value[better], episode
        self.t[cell], self.agent[cell] = t[better], agent[better]
        order = np.argsort(-self.value, axis=1, kind="stable")
        for column in (self.value, self.episode, self.t, self.agent):
            column[...] = np.take_along_axis(column, order, 1)


@dataclass(frozen=True)
class BehaviourPreserved:
    """What a policy still does when a site's activations are replaced, over the rows of a recording.

    Attributes:
        logits_preserved: share of the logits' variance that is preserved when the site holds the reconstruction.
        logits_preserved_by_mean: the same when it holds its mean activation; high for a site that does not matter.
        actions_preserved: share of rows at which the most likely action stays the same with the reconstruction.
        actions_preserved_by_mean: the same with the mean activation.
    """

    logits_preserved: float
    logits_preserved_by_mean: float
    actions_preserved: float
    actions_preserved_by_mean: float


def behaviour_preserved(
    dictionary: Dictionary, recording: Recording, *, policies: Mapping[str, Policy] | None = None, max_rows: int = 20000
) -> BehaviourPreserved:
    """Replaces the site's activations by their reconstruction and measures what happens to the logits.

    Units that the dictionary does not cover are set to their mean; for a dictionary from rest the mean is rest.

    Args:
        policies: by group; None: those of the checkpoint that made the recording.
        max_rows: spread evenly over the recording.
    Raises:
        AnalysisError: the policy has no logits, or the agents never acted.
    """
    source = RowSource(recording, dictionary.site.split("/")[0])
    policy = (source.policies() if policies is None else policies)[source.group]
    if policy.distribution is None:
        raise AnalysisError(f"{type(policy).__name__} has no network whose logits could be compared")
    group = list(policy.group.agents)
    members = [group.index(name) for name in dictionary.agents]
    rows = source.rows(None)
    sample = np.unique(np.linspace(0, len(rows) - 1, min(max_rows, len(rows))).astype(int))
    parts: dict[Replacement, list[Tensor]] = {"none": [], "reconstruction": [], "mean": []}
    for batch in source.batches(Rows(rows.index[sample], rows.episode[sample], rows.t[sample]), BATCH_ROWS):
        acting = batch.acting[:, members].bool()
        for replacement, of_batches in parts.items():
            with torch.no_grad(), _replaced(policy, dictionary, members, replacement):
                all_logits, _ = policy.logits(batch.observations[source.group], recurrent=batch.recurrent)
            of_batches.append(all_logits[:, members][acting])
    logits, reconstruction, mean = (torch.cat(of_batches) for of_batches in parts.values())
    if not len(logits):
        raise AnalysisError(f"{', '.join(dictionary.agents)} never acted")
    variance = (logits - logits.mean(0)).square().sum()
    action, *replaced = (policy.distribution.mode(each).action for each in (logits, reconstruction, mean))
    preserved = [float(1 - (each - logits).square().sum() / variance) for each in (reconstruction, mean)]
    return BehaviourPreserved(*preserved, *(_agreement(action, other) for other in replaced))


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


def _agreement(a: Tensor, b: Tensor) -> float:
    """Share of rows with equal actions."""
    same = torch.isclose(a, b) if a.is_floating_point() else a == b
    return float((same if same.ndim == 1 else same.all(-1)).float().mean())
