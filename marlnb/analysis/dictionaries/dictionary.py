"""Dictionary: the sparse features of a site's activations, and how far they can be trusted."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pandas as pd
import torch

from marlnb.analysis.results import Result, strict_json
from marlnb.disk import replacing, writing
from marlnb.errors import AnalysisError
from marlnb.models.hooks.directions import Direction
from marlnb.models.hooks.sites import group_of
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.with_features import WithFeatures
from marlnb.recording.file.inspection import inspect
from marlnb.recording.file.journal import JournaledFile
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.training.policies.policy_source import PolicySourceLike, as_policy_source
from marlnb.training.policies.transformed import TransformedPolicySource

MAX_DEAD_SHARE = 0.25
MIN_EXPLAINED = 0.8
MIN_EXAMPLES_PER_FEATURE = 20
RARE_KURTOSIS = 3.0
"""Excess kurtosis of a Laplace distribution, the prior that an L1 penalty stands for."""
MAX_FREQUENT_SHARE = 0.5
_FORMAT = "marlnb.dictionary"
_COLUMNS = ("density", "mean_active", "top_value", "top_episode", "top_t", "top_agent")
_OPTIONAL_COLUMNS = ("kurtosis",)
_META = ("explained", "active", "n_train", "n_held_out", "losses", "units", "from_rest")
_JSON_FIELDS = (
    *("site", "agents", "kind", "k", "n_features", "units", "from_rest", "explained", "active", "dead"),
    *("n_train", "n_held_out", "warnings", "feature_warnings"),
)


@dataclass(frozen=True, eq=False, repr=False)
class Dictionary(Result):
    """Features of one site, in the order of the autoencoder.

    Attributes:
        autoencoder: maps activations to features and back.
        site: the site's name.
        agents: agents whose activations it was trained on.
        density: `[feature]`, share of examples at which the feature is above 0.
        mean_active: `[feature]`, its mean at these, in normalised units; NaN if there are none.
        explained: share of the held-out activations' variance (around the training mean, or around rest) that the
            features explain.
        active: mean number of features above 0 at an example (L0).
        n_train: training examples (rows at which an agent acted).
        n_held_out: held-out examples.
        losses: `[epoch]`, training losses.
        top_value: `[feature, rank]`, its largest values, at most one for each episode; -1 where there are fewer.
        top_episode: `[feature, rank]`, their episodes.
        top_t: `[feature, rank]`, their time steps.
        top_agent: `[feature, rank]`, their agents, indices into `agents`.
        origin: the recording and its checkpoint.
        kurtosis: `[feature]`, excess kurtosis of the activations along its direction, large for a rare concept; NaN in
            files that were written before it was measured.
        units: units of the site that it reads and writes; empty for all.
        from_rest: whether features add up from units at 0 instead of from their mean.
    """

    MAX_HTML_ROWS: ClassVar[int | None] = 20

    autoencoder: SparseAutoencoder
    site: str
    agents: tuple[str, ...]
    density: np.ndarray
    mean_active: np.ndarray
    explained: float
    active: float
    n_train: int
    n_held_out: int
    losses: tuple[float, ...]
    top_value: np.ndarray
    top_episode: np.ndarray
    top_t: np.ndarray
    top_agent: np.ndarray
    origin: Mapping[str, Any] = field(default_factory=dict)
    kurtosis: np.ndarray = field(default_factory=lambda: np.zeros(0))
    units: tuple[int, ...] = ()
    from_rest: bool = False

    def __post_init__(self) -> None:
        if not len(self.kurtosis):
            object.__setattr__(self, "kurtosis", np.full(self.n_features, np.nan))

    @property
    def n_features(self) -> int:
        return self.autoencoder.n_features

    @property
    def dead(self) -> np.ndarray:
        """Features that are never above 0, ascending."""
        return np.flatnonzero(self.density == 0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons not to trust the dictionary."""
        warnings = []
        if self.explained < MIN_EXPLAINED:
            warnings.append(f"the features explain only {self.explained:.0%} of the activations' variance")
        if len(self.dead) > MAX_DEAD_SHARE * self.n_features:
            warnings.append(f"{len(self.dead)} of {self.n_features} features never fire")
        if self.n_train < MIN_EXAMPLES_PER_FEATURE * self.n_features:
            warnings.append(f"only {self.n_train:,} examples for {self.n_features} features")
        return tuple(warnings)

    @property
    def feature_warnings(self) -> tuple[str, ...]:
        """Reasons why single features may not be the network's own directions.

        An L1 penalty assumes that features are as rare as a Laplace distribution. Concepts that are present half of the
        time, such as positions or goals, can be written along many bases, and the data do not decide between them.
        """
        power = self.density * np.square(self.mean_active)
        known = np.isfinite(self.kurtosis) & np.isfinite(power)
        if not known.any():
            return ()
        frequent = float(power[known & (self.kurtosis < RARE_KURTOSIS)].sum() / power[known].sum())
        if frequent <= MAX_FREQUENT_SHARE:
            return ()
        return (
            f"{frequent:.0%} of what the features write is often there, so single features may not be the network's "
            "own directions",
        )

    def direction(self, feature: int, agent: str | None = None) -> Direction:
        """A feature's decoder row, with its mean and spread in the site's own units.

        Raises:
            AnalysisError: no such feature or agent, or several agents and none chosen.
        """
        self._check(feature)
        chosen = self.chosen_agent(agent)
        density = float(self.density[feature])
        size = 0.0 if density == 0 else float(self.mean_active[feature]) * float(self.autoencoder.scale)
        vector = tuple(self.autoencoder.decoder[feature].tolist())
        centre = float(self.autoencoder.mean @ self.autoencoder.decoder[feature])
        name = f"feature {feature} of {self.site}"
        return Direction(self.site, chosen, vector, centre + density * size, size, name)

    def chosen_agent(self, agent: str | None) -> str:
        """The agent, or the only one.

        Raises:
            AnalysisError: no such agent, or several agents and none chosen.
        """
        if agent is None and len(self.agents) > 1:
            raise AnalysisError(f"this dictionary has several agents: set agent= to one of {list(self.agents)}")
        if agent is not None and agent not in self.agents:
            raise AnalysisError(f"this dictionary has the agents {list(self.agents)}; got agent={agent!r}")
        return agent or self.agents[0]

    def agreement(self, other: Dictionary) -> np.ndarray:
        """`max_j cos(d_i, d'_j)`: each feature's cosine with the nearest one of another dictionary of the same site,
        trained with another seed. It shows which features depend on the data and not on the seed.

        Returns:
            `[feature]`, 1 for a feature that both have; NaN for a dead feature.
        Raises:
            AnalysisError: the other is of another site, or of other agents.
        Source: Sharkey et al. 2022 (mean max cosine similarity); Paulo and Belrose 2025, arXiv:2501.16615.
        """
        if (self.site, self.agents) != (other.site, other.agents):
            raise AnalysisError(
                f"a dictionary of {self.site} of {list(self.agents)} cannot be compared with one of {other.site} of "
                f"{list(other.agents)}"
            )
        alive = np.flatnonzero(other.density)
        cosine = self.autoencoder.decoder.numpy() @ other.autoencoder.decoder.numpy()[alive].T
        return np.where(self.density > 0, cosine.max(1, initial=-1.0), np.nan)

    def attach(self, policy: Policy) -> WithFeatures:
        """A copy of a policy with the features as the site `<site>_features`, which can be recorded and edited."""
        group = list(policy.group.agents)
        site_agents = next((site.agents for site in policy.sites() if site.name == self.site), None)
        names = group if site_agents is None else [group[index] for index in site_agents]
        agents = None if list(self.agents) == names else tuple(group.index(name) for name in self.agents)
        return WithFeatures(policy, self.site, self.autoencoder, agents)

    def policy_source(self, policy_source: PolicySourceLike) -> TransformedPolicySource:
        """The same agents with the features as a site, to record, evaluate and intervene on."""
        weights = b"".join(tensor.numpy().tobytes() for tensor in self.autoencoder.state_dict().values())
        description = f"with the features of {self.site}, {hashlib.sha256(weights).hexdigest()[:12]}"
        return TransformedPolicySource(as_policy_source(policy_source), {group_of(self.site): self.attach}, description)

    def features(self, recording: RecordingLike, rows: slice | np.ndarray | None = None) -> np.ndarray:
        """`[row, agent, feature]` of a recording's rows, in normalised units.

        Args:
            rows: positions of the rows; None for all. `label_features(..., rows=)` takes a condition instead.
        Raises:
            AnalysisError: rows is a condition.
        """
        if isinstance(rows, str):
            raise AnalysisError(
                f"rows={rows!r}: features() takes positions of rows; label_features(..., rows=) takes a condition"
            )
        array = opened_recording(recording)[self.site].sel(agent=list(self.agents))
        array = array if rows is None else replace(array, rows=array.rows[rows])
        with torch.no_grad():
            parts = [self.autoencoder(torch.from_numpy(batch)).numpy() for batch in array.batches(65536)]
        return np.concatenate(parts)

    def top(self, feature: int) -> pd.DataFrame:
        """The episodes in which a feature was largest: value, episode, t, agent."""
        self._check(feature)
        exists = self.top_episode[feature] >= 0
        columns = {"value": self.top_value, "episode": self.top_episode, "t": self.top_t, "agent": self.top_agent}
        frame = pd.DataFrame({name: values[feature][exists] for name, values in columns.items()})
        return frame.assign(agent=[self.agents[k] for k in frame["agent"]])

    def table(self) -> pd.DataFrame:
        """One row for each feature, the densest first."""
        columns = {"density": self.density, "mean_active": self.mean_active, "largest": self.top_value[:, 0]}
        largest_at = {"largest_episode": self.top_episode[:, 0], "largest_t": self.top_t[:, 0]}
        frame = pd.DataFrame(columns | largest_at)
        return frame.rename_axis("feature").sort_values("density", ascending=False, kind="stable")

    def to_json(self) -> dict[str, Any]:
        """Its quality and options as plain JSON, without the weights."""
        computed = {"kind": self.autoencoder.kind, "k": self.autoencoder.k, "dead": len(self.dead)}
        content = {name: computed[name] if name in computed else getattr(self, name) for name in _JSON_FIELDS}
        return dict(strict_json(content))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Writes HDF5, atomically.

        Raises:
            AnalysisError: the file exists and `overwrite` is False.
        """
        target = Path(path)
        if target.exists() and not overwrite:
            raise AnalysisError(f"{target} exists already; save(..., overwrite=True) replaces it")
        target.parent.mkdir(parents=True, exist_ok=True)
        meta = {"site": self.site, "agents": self.agents, "kind": self.autoencoder.kind, "k": self.autoencoder.k}
        meta |= {name: getattr(self, name) for name in _META}
        with writing(target, kind=AnalysisError), replacing(target) as part:
            # HDF5 ends the process where it cannot write to a path
            with JournaledFile(part, locking=False) as storage, h5py.File(storage, "w") as file:
                file.attrs["format"], file.attrs["version"] = _FORMAT, 1
                file.attrs["meta"] = json.dumps({**meta, "origin": dict(self.origin)})
                for name, tensor in self.autoencoder.state_dict().items():
                    file[f"weights/{name}"] = tensor.numpy()
                for name in (*_COLUMNS, *_OPTIONAL_COLUMNS):
                    file[name] = getattr(self, name)
        return target

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Dictionary:
        """Reads what `save` wrote.

        Raises:
            AnalysisError: the file does not exist or is not a dictionary.
        """
        if not Path(path).is_file():
            raise AnalysisError(f"no dictionary at {path}")
        try:
            inspect(Path(path))
            with h5py.File(path, "r") as file:
                if file.attrs.get("format") != _FORMAT:
                    raise AnalysisError(f"{path} is not a dictionary: its format is {file.attrs.get('format')!r}")
                meta = json.loads(file.attrs["meta"])
                weights = {name: torch.from_numpy(np.asarray(data[()])) for name, data in file["weights"].items()}
                optional = tuple(name for name in _OPTIONAL_COLUMNS if name in file)
                columns = {name: file[name][()] for name in (*_COLUMNS, *optional)}
        except AnalysisError:
            raise
        except Exception as error:  # whatever HDF5 and the contents of a damaged file raise
            raise AnalysisError(f"{path} cannot be read as a dictionary: {error}") from error
        n_features, n_units = weights["decoder"].shape
        autoencoder = SparseAutoencoder(n_units, n_features, meta.pop("kind"), meta.pop("k"))
        autoencoder.load_state_dict(weights)
        options: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in meta.items()
        }
        return Dictionary(autoencoder.requires_grad_(False), **options, **columns)

    def _check(self, feature: int) -> None:
        if not 0 <= feature < self.n_features:
            raise AnalysisError(f"no feature {feature}; this dictionary has features 0 to {self.n_features - 1}")

    def _labelled_warnings(self) -> Iterator[tuple[str, str]]:
        yield from super()._labelled_warnings()
        for warning in self.feature_warnings:
            yield "DOUBTFUL", warning

    @property
    def verdict(self) -> str:
        """How well the features rebuild held-out activations, and what this does not show."""
        return (
            f"{self.n_features} features explain {self.explained:.1%} of the variance of {self.site} in "
            f"{self.n_held_out:,} held-out examples ({self.active:.1f} active at a time, {len(self.dead)} dead); this "
            "does not show that they preserve the behaviour (behaviour_preserved), that another seed finds them "
            "(agreement), or what they stand for (label_features)."
        )

    def _repr_table(self) -> pd.DataFrame:
        return self.table().reset_index()
