"""How well a dictionary reconstructs held-out episodes, and how much of the behaviour it preserves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.errors import AnalysisError
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder

if TYPE_CHECKING:
    from marlnb.analysis.data.activation_stream import ActivationStream

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
    autoencoder.eval()
    with torch.no_grad():
        for rows, values, acting in stream.blocks(stream.rows.index):
            features, acted = autoencoder(values), torch.from_numpy(acting)
            at = np.searchsorted(stream.rows.index, rows)
            top.add(features.masked_fill(~acted[..., None], -1.0), stream.rows.episode[at], stream.rows.t[at])
            f = features[acted]
            fired += (f > 0).double().sum(0)
            total += f.double().sum(0)
            n_acted += len(f)
            projection = (autoencoder.normalised(values[acted]) @ autoencoder.decoder.T).double()
            powers += torch.stack([projection.pow(k).sum(0) for k in (1, 2, 3, 4)])
            tested = torch.from_numpy(acting & np.isin(rows, stream.held_out)[:, None])
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
        origin=stream.source.origin(stream.checkpoint),
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
