"""Dictionary: what a sparse dictionary of a site's activations consists of, and how far it can be trusted."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pandas as pd
import torch

from marlnb.errors import AnalysisError
from marlnb.models.hooks.directions import Direction
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder
from marlnb.models.networks.with_features import WithFeatures
from marlnb.models.policies.policy import Policy
from marlnb.training.policies.policy_source import PolicySource, as_policy_source
from marlnb.training.policies.transformed import TransformedPolicySource

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

MOST_DEAD = 0.25
LEAST_EXPLAINED = 0.8
FEWEST_EXAMPLES_A_FEATURE = 20
RARE_KURTOSIS = 3.0
"""Excess kurtosis of a Laplace distribution, which an L1 penalty supposes."""
MOST_OFTEN = 0.5
_FORMAT = "marlnb.dictionary"
_COLUMNS = ("density", "mean_active", "top_value", "top_episode", "top_t", "top_agent")
_LATER_COLUMNS = ("kurtosis",)
_NUMBERS = ("explained", "active", "n_train", "n_held_out", "losses", "units", "from_rest")


@dataclass(frozen=True, eq=False)
class Dictionary:
    """Features of one site, in the order of the autoencoder.

    Attributes:
        autoencoder: maps activations to features and back.
        agents: whose activations it was trained on.
        density: `[feature]`, share of all examples at which the feature is above 0.
        mean_active: `[feature]`, its mean there, in normalised units; NaN where it never was.
        explained: share of the held-out activations' variance (around the training mean, or around rest) that the
            features explain.
        active: features above 0 at an example, on average (L0).
        n_train, n_held_out: examples (rows at which an agent acted).
        losses: `[epoch]`, of training.
        top_value, top_episode, top_t, top_agent: `[feature, rank]`, the episodes in which it was largest, once each; -1
            where there are fewer.
        origin: the recording and its checkpoint.
        kurtosis: `[feature]`, excess kurtosis of the activations along its direction: large where what it stands for is
            rarely there; NaN where it was not measured (files written before it was).
        units: of the site, that it is about: it reads and writes no others; empty: all.
        from_rest: whether features add up from units at 0, and not from their mean.
    """

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
        """Features that no example has, ascending."""
        return np.flatnonzero(self.density == 0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why this must not be trusted; empty where nothing is known against it."""
        found = []
        if self.explained < LEAST_EXPLAINED:
            found.append(f"the features explain only {self.explained:.0%} of the activations' variance")
        if len(self.dead) > MOST_DEAD * self.n_features:
            found.append(f"{len(self.dead)} of {self.n_features} features never fire")
        if self.n_train < FEWEST_EXAMPLES_A_FEATURE * self.n_features:
            found.append(f"only {self.n_train:,} examples for {self.n_features} features")
        return tuple(found)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why its features may be none of the network's own directions one by one; empty where nothing speaks for it.

        An L1 penalty supposes what is as rare as a Laplace distribution says; what is there half the time, as a place
        or a goal is, can be written along many bases, and which of them comes out the data do not decide.
        """
        written = self.density * np.square(self.mean_active)
        known = np.isfinite(self.kurtosis) & np.isfinite(written)
        if not known.any():
            return ()
        often = float(written[known & (self.kurtosis < RARE_KURTOSIS)].sum() / written[known].sum())
        if often <= MOST_OFTEN:
            return ()
        return (
            f"{often:.0%} of what the features write is often there: single features may be no directions of its own",
        )

    def direction(self, feature: int, agent: str | None = None) -> Direction:
        """Where a feature lies among the units: its decoder row, with its mean and spread in the site's own units.

        Raises:
            AnalysisError: no such feature or agent, or several agents and none named.
        """
        self._check(feature)
        if agent is None and len(self.agents) > 1:
            raise AnalysisError(f"whose direction? agent must be one of {list(self.agents)}")
        who = agent or self.agents[0]
        if who not in self.agents:
            raise AnalysisError(f"this dictionary is of {list(self.agents)}; got agent={agent!r}")
        share = float(self.density[feature])
        size = 0.0 if share == 0 else float(self.mean_active[feature]) * float(self.autoencoder.scale)
        vector = tuple(self.autoencoder.decoder[feature].tolist())
        centre = float(self.autoencoder.mean @ self.autoencoder.decoder[feature])
        return Direction(self.site, who, vector, centre + share * size, size, f"feature {feature} of {self.site}")

    def agreement(self, other: Dictionary) -> np.ndarray:
        """How surely each feature is the data's and not the draw's: its cosine with the nearest of another dictionary
        of the same site, trained with another seed.

        Returns:
            `[feature]`, 1 where it was found again; NaN for a dead feature.
        Raises:
            AnalysisError: the other is of another site, or of other agents.
        Source: Sharkey et al. 2022 (mean max cosine similarity); Paulo and Belrose 2025, arXiv:2501.16615.
        """
        if (self.site, self.agents) != (other.site, other.agents):
            raise AnalysisError(
                f"features of {self.site} of {list(self.agents)} cannot be compared with those of {other.site} of "
                f"{list(other.agents)}"
            )
        alive = np.flatnonzero(other.density)
        cosine = self.autoencoder.decoder.numpy() @ other.autoencoder.decoder.numpy()[alive].T
        return np.where(self.density > 0, cosine.max(1, initial=-1.0), np.nan)

    def attach(self, policy: Policy) -> WithFeatures:
        """A copy of a policy that has the features as the site `<site>_features`, recorded and edited like others."""
        group = list(policy.group.agents)
        bearers = next((site.agents for site in policy.sites() if site.name == self.site), None)
        everyone = [group[index] for index in bearers] if bearers is not None else group
        whole = list(self.agents) == everyone
        agents = None if whole else tuple(group.index(name) for name in self.agents)
        return WithFeatures(policy, self.site, self.autoencoder, agents)

    def subject(self, subject: PolicySource | str | os.PathLike[str]) -> TransformedPolicySource:
        """The same agents with the features as a site, to be recorded, evaluated and intervened on."""
        digest = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in self.autoencoder.state_dict().values()))
        told = f"with the features of {self.site}, {digest.hexdigest()[:12]}"
        return TransformedPolicySource(as_policy_source(subject), {self.site.split("/")[0]: self.attach}, told)

    def features(self, recording: Recording, rows: slice | np.ndarray | None = None) -> np.ndarray:
        """`[row, agent, feature]` of a recording's rows, in normalised units; all of them by default."""
        array = recording[self.site].sel(agent=list(self.agents))
        chosen = array if rows is None else replace(array, rows=array.rows[rows])
        with torch.no_grad():
            parts = [self.autoencoder(torch.from_numpy(part)).numpy() for part in chosen.batches(65536)]
        return np.concatenate(parts)

    def top(self, feature: int) -> pd.DataFrame:
        """The episodes in which a feature was largest: value, episode, t, agent."""
        self._check(feature)
        there = self.top_episode[feature] >= 0
        return pd.DataFrame(
            {
                "value": self.top_value[feature][there],
                "episode": self.top_episode[feature][there],
                "t": self.top_t[feature][there],
                "agent": [self.agents[k] for k in self.top_agent[feature][there]],
            }
        )

    def table(self) -> pd.DataFrame:
        """One line a feature, the densest first."""
        frame = pd.DataFrame(
            {
                "density": self.density,
                "mean_active": self.mean_active,
                "largest": self.top_value[:, 0],
                "largest_episode": self.top_episode[:, 0],
                "largest_t": self.top_t[:, 0],
            }
        )
        return frame.rename_axis("feature").sort_values("density", ascending=False, kind="stable")

    def to_json(self) -> dict[str, Any]:
        """What it reached, as plain JSON, without its weights."""
        return {
            "site": self.site,
            "agents": list(self.agents),
            "kind": self.autoencoder.kind,
            "k": self.autoencoder.k,
            "n_features": self.n_features,
            "units": list(self.units),
            "from_rest": self.from_rest,
            "explained": self.explained,
            "active": self.active,
            "dead": len(self.dead),
            "n_train": self.n_train,
            "n_held_out": self.n_held_out,
            "warnings": list(self.warnings),
            "doubts": list(self.doubts),
        }

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Writes HDF5, atomically.

        Raises:
            AnalysisError: the file is there and `overwrite` is not set.
        """
        target = Path(path)
        if target.exists() and not overwrite:
            raise AnalysisError(f"{target} exists already; save(..., overwrite=True) would replace it")
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        facts = {"site": self.site, "agents": self.agents, "kind": self.autoencoder.kind, "k": self.autoencoder.k}
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        try:
            with h5py.File(part, "w") as file:
                file.attrs["format"], file.attrs["version"] = _FORMAT, 1
                file.attrs["meta"] = json.dumps({**facts, **numbers, "origin": dict(self.origin)})
                for name, tensor in self.autoencoder.state_dict().items():
                    file[f"weights/{name}"] = tensor.numpy()
                for name in (*_COLUMNS, *_LATER_COLUMNS):
                    file[name] = getattr(self, name)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
        return target

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Dictionary:
        """Reads what `save` wrote.

        Raises:
            AnalysisError: there is no such file, or it is no dictionary.
        """
        if not Path(path).is_file():
            raise AnalysisError(f"no dictionary at {path}")
        try:
            with h5py.File(path, "r") as file:
                if file.attrs.get("format") != _FORMAT:
                    raise AnalysisError(f"{path} is no dictionary: format {file.attrs.get('format')!r}")
                meta = json.loads(file.attrs["meta"])
                weights = {name: torch.from_numpy(np.asarray(data[()])) for name, data in file["weights"].items()}
                columns = {
                    name: file[name][()] for name in (*_COLUMNS, *_LATER_COLUMNS) if name in _COLUMNS or name in file
                }
        except (OSError, KeyError) as error:
            raise AnalysisError(f"{path} cannot be read as a dictionary: {error}") from error
        n_features, n_units = weights["decoder"].shape
        autoencoder = SparseAutoencoder(n_units, n_features, meta.pop("kind"), meta.pop("k"))
        autoencoder.load_state_dict(weights)
        facts: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in meta.items()
        }
        return Dictionary(autoencoder.requires_grad_(False), **facts, **columns)

    def _check(self, feature: int) -> None:
        if not 0 <= feature < self.n_features:
            raise AnalysisError(f"no feature {feature}; this dictionary has 0 to {self.n_features - 1}")

    def __repr__(self) -> str:
        flag = "".join(f"; NOT TO BE TRUSTED: {note}" for note in self.warnings)
        flag += "".join(f"; DOUBTFUL: {note}" for note in self.doubts)
        return (
            f"Dictionary({self.site}: {self.n_features} features, {self.active:.1f} active, "
            f"{self.explained:.1%} of the variance explained, {len(self.dead)} dead{flag})"
        )

    def _repr_html_(self) -> str:
        notes = "".join(
            f"<p style='color:#b00020'><b>NOT TO BE TRUSTED:</b> {escape(note)}</p>" for note in self.warnings
        )
        notes += "".join(f"<p style='color:#b00020'><b>DOUBTFUL:</b> {escape(note)}</p>" for note in self.doubts)
        return f"<p>{escape(repr(self))}</p>{notes}{self.table().head(20).to_html(float_format='%.3g')}"
