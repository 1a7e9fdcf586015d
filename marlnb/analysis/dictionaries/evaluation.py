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
    sums, errors, top = _FeatureSums(autoencoder), _HeldOutErrors(autoencoder), _TopEpisodes(autoencoder.n_features)
    autoencoder.eval()
    with torch.no_grad():
        for rows, values, acting in stream.blocks(stream.rows.index):
            features, acted = autoencoder(values), torch.from_numpy(acting)
            at = np.searchsorted(stream.rows.index, rows)
            top.add(features.masked_fill(~acted[..., None], -1.0), stream.rows.episode[at], stream.rows.t[at])
            sums.add(features[acted], values[acted])
            tested = torch.from_numpy(acting & np.isin(rows, stream.held_out)[:, None])
            errors.add(features[tested], values[tested])
    if not errors.n:
        raise AnalysisError(f"{', '.join(stream.agents)} never acted in the held-out episodes")
    units = tuple(stream.units or ())
    if units:
        autoencoder = autoencoder.widened(units, stream.with_all_units().mean_and_scale()[0])
    return Dictionary(
        autoencoder=autoencoder.requires_grad_(False),
        site=site,
        agents=stream.agents,
        density=sums.density,
        mean_active=sums.mean_active,
        explained=errors.explained,
        active=errors.n_active / errors.n,
        n_train=sums.n - errors.n,
        n_held_out=errors.n,
        losses=tuple(losses),
        top_value=top.value,
        top_episode=top.episode,
        top_t=top.t,
        top_agent=top.agent,
        origin=stream.source.origin(stream.checkpoint),
        kurtosis=sums.kurtosis,
        units=units,
        from_rest=from_rest,
    )


class _FeatureSums:
    """Sums over the rows at which agents act.

    Attributes:
        n: rows so far.
    """

    def __init__(self, autoencoder: SparseAutoencoder) -> None:
        n_features = autoencoder.n_features
        self._autoencoder, self.n = autoencoder, 0
        self._fired, self._total = (torch.zeros(n_features, dtype=torch.float64) for _ in range(2))
        self._powers = torch.zeros(4, n_features, dtype=torch.float64)

    def add(self, features: Tensor, values: Tensor) -> None:
        """features `[row, feature]`; activations `[row, unit]`."""
        self._fired += (features > 0).double().sum(0)
        self._total += features.double().sum(0)
        self.n += len(features)
        projection = (self._autoencoder.normalised(values) @ self._autoencoder.decoder.T).double()
        self._powers += torch.stack([projection.pow(k).sum(0) for k in (1, 2, 3, 4)])

    @property
    def density(self) -> np.ndarray:
        """`[feature]`, the share of rows at which it is active."""
        return (self._fired / self.n).numpy()

    @property
    def mean_active(self) -> np.ndarray:
        """`[feature]`, the mean over rows at which it is active; NaN without one."""
        never = np.full(len(self._total), np.nan)
        return np.divide(self._total.numpy(), self._fired.numpy(), out=never, where=self.density > 0)

    @property
    def kurtosis(self) -> np.ndarray:
        """`[feature]`, of the activations' projections onto the features."""
        return _excess_kurtosis(self._powers / self.n)


class _HeldOutErrors:
    """Errors of the reconstruction over the rows of held-out episodes.

    Attributes:
        n: rows so far.
        n_active: active features of these rows.
    """

    def __init__(self, autoencoder: SparseAutoencoder) -> None:
        self._autoencoder, self.n = autoencoder, 0
        self._error = self._variance = self.n_active = 0.0

    def add(self, features: Tensor, values: Tensor) -> None:
        """features `[row, feature]`; activations `[row, unit]`."""
        self._error += float((values - self._autoencoder.decode(features)).double().square().sum())
        self._variance += float((values - self._autoencoder.mean).double().square().sum())
        self.n_active += float((features > 0).sum())
        self.n += len(features)

    @property
    def explained(self) -> float:
        """`1 - sum |x - x̂|² / sum |x - mean|²`."""
        return 1 - self._error / self._variance


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
