"""The answer to an attribution: its values, how far they can be trusted, its tables and its file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

from marlnb.analysis.methods import COMPLETE
from marlnb.errors import AnalysisError

TOLERANCE = 0.05
"""Largest share of an explanation that may be missing at nineteen rows of twenty before it is called unconverged."""

_FORMAT = "marlnb.attribution"
_VERSION = 1


@dataclass(frozen=True, eq=False)
class Attribution:
    """What each feature contributed to one output of each agent, at each row.

    Attributes:
        values: `[row, agent, feature]`, in `units`; NaN where the agent was not acting.
        score, baseline_score: `[row, agent]`, the output at the observation and at the baseline.
        episode, t: `[row]`.
        baseline: `[agent, feature]`.
        feature_agents: for sources="all", the agent that observes each feature; empty for own.
        target: the output in words; units: logits, nats or reward.
        origin: where it came from (recording, checkpoint, experiment as JSON, code version).
    """

    values: np.ndarray
    score: np.ndarray
    baseline_score: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    baseline: np.ndarray
    agents: tuple[str, ...]
    feature_names: tuple[str, ...]
    feature_agents: tuple[str, ...]
    group: str
    to: str
    target: str
    units: str
    method: str
    n_steps: int
    baseline_name: str
    sources: str
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether the method promises that values add up to score - baseline_score."""
        return self.method in COMPLETE

    @property
    def convergence_delta(self) -> np.ndarray:
        """`[row, agent]`: the sum of the values minus (score - baseline_score); NaN where nothing promises 0."""
        if not self.complete:
            return np.full(self.score.shape, np.nan, np.float32)
        return self.values.sum(-1) - (self.score - self.baseline_score)

    @property
    def relative_delta(self) -> np.ndarray:
        """`[row, agent]`: |convergence_delta| as a share of what there was to explain.

        That is the larger of |score - baseline_score| and the sum of |values|, and at least a thousandth of its mean
        over the rows, so that a row at the baseline does not divide by nothing.
        """
        size = np.maximum(np.abs(self.score - self.baseline_score), np.abs(self.values).sum(-1))
        floor = 1e-3 * np.nanmean(size) if np.isfinite(size).any() else 0.0
        return np.abs(self.convergence_delta) / np.maximum(size, max(float(floor), 1e-30))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why this must not be trusted; empty where nothing is known against it."""
        found = []
        acting = np.isfinite(self.score)
        if not acting.any():
            return ("no agent was acting at any of these rows",)
        if not np.isfinite(self.values[acting]).all():
            found.append("some values are not finite")
        elif self.complete:
            worst = float(np.quantile(self.relative_delta[acting], 0.95))
            if worst > TOLERANCE:
                cure = "raise n_steps" if self.n_steps else "use integrated_gradients"
                found.append(
                    f"did not converge: at one row of twenty {worst:.0%} or more of the output is unexplained "
                    f"(tolerated: {TOLERANCE:.0%}); {cure}"
                )
        if float(np.ptp(self.score[acting])) == 0.0 and acting.sum() > 1:
            found.append("the output never varies over these rows")
        return tuple(found)

    def summary(self) -> pd.DataFrame:
        """By agent and feature: mean, standard deviation and mean absolute value over rows, and the share of the sum
        of the latter."""
        with np.errstate(invalid="ignore"):
            size = np.nanmean(np.abs(self.values), axis=0)
            share = size / size.sum(-1, keepdims=True)
        columns = {
            "agent": np.repeat(self.agents, len(self.feature_names)),
            "feature": list(self.feature_names) * len(self.agents),
            "mean": np.nanmean(self.values, axis=0).ravel(),
            "std": np.nanstd(self.values, axis=0).ravel(),
            "mean_abs": size.ravel(),
            "share": share.ravel(),
        }
        if self.feature_agents:
            columns["source"] = list(self.feature_agents) * len(self.agents)
        return pd.DataFrame(columns)

    def to_pandas(self) -> pd.DataFrame:
        """One line for each row and agent: episode, t, agent, score, convergence_delta, then a column a feature."""
        n_rows, n_agents = self.score.shape
        names = self.feature_names
        if self.feature_agents:
            names = tuple(f"{agent}: {name}" for agent, name in zip(self.feature_agents, names))
        table = pd.DataFrame(self.values.reshape(n_rows * n_agents, -1), columns=list(names))
        head = {
            "episode": np.repeat(self.episode, n_agents),
            "t": np.repeat(self.t, n_agents),
            "agent": np.tile(self.agents, n_rows),
            "score": self.score.ravel(),
            "convergence_delta": self.convergence_delta.ravel(),
        }
        return pd.concat([pd.DataFrame(head), table], axis=1)

    def by_source(self) -> dict[str, np.ndarray]:
        """What each agent's output owes to each agent's observation: source agent -> `[row, agent, feature]`.

        Raises:
            AnalysisError: it was made for own observations only.
        """
        if not self.feature_agents:
            raise AnalysisError(
                "each agent's own observation was explained; attribute(..., sources='all') has them all"
            )
        owners = np.array(self.feature_agents)
        return {source: self.values[..., owners == source] for source in dict.fromkeys(self.feature_agents)}

    def influence(self) -> pd.DataFrame:
        """Mean over rows of the sum of |values| by agent (lines) and source agent (columns), in `units`."""
        sums = {source: np.nanmean(np.abs(part).sum(-1), axis=0) for source, part in self.by_source().items()}
        return pd.DataFrame(sums, index=pd.Index(self.agents, name="agent"))

    def save(self, path: str | Path | None = None, *, overwrite: bool = False) -> Path:
        """Writes HDF5, atomically; None: beside the recording, in `<recording>.attributions/`.

        Raises:
            AnalysisError: the file exists and `overwrite` is not set, or there is no recording to lie beside.
        """
        target = Path(path) if path is not None else self._beside_recording()
        if target.exists() and not overwrite:
            raise AnalysisError(f"{target} exists already; save(..., overwrite=True) would replace it")
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with h5py.File(part, "w") as file:
                self._write(file)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
        return target

    @staticmethod
    def load(path: str | Path) -> Attribution:
        """Reads what `save` wrote.

        Raises:
            AnalysisError: there is no such file, or it is not an attribution.
        """
        if not Path(path).is_file():
            raise AnalysisError(f"no attribution at {path}")
        try:
            with h5py.File(path, "r") as file:
                if file.attrs.get("format") != _FORMAT:
                    raise AnalysisError(f"{path} is not an attribution: format {file.attrs.get('format')!r}")
                meta = json.loads(file.attrs["meta"])
                arrays = {name: file[name][()] for name in _ARRAYS}
        except (OSError, KeyError) as error:
            raise AnalysisError(f"{path} cannot be read as an attribution: {error}") from error
        lists = {name: tuple(value) for name, value in meta.items() if isinstance(value, list)}
        return Attribution(**{**meta, **lists, **arrays})

    def _beside_recording(self) -> Path:
        if "recording" not in self.origin:
            raise AnalysisError("this attribution was not made from a recording: give save a path")
        recording = Path(self.origin["recording"])
        what = self.target.replace(" ", "_").replace("/", "-")
        name = f"{self.group}-{self.to}-{what}-{self.method}-{self.sources}.h5"
        return recording.with_suffix(".attributions") / name

    def _write(self, file: h5py.File) -> None:
        file.attrs["format"], file.attrs["version"] = _FORMAT, _VERSION
        file.attrs["meta"] = json.dumps({f.name: getattr(self, f.name) for f in fields(self) if f.name not in _ARRAYS})
        for name in _ARRAYS:
            file[name] = getattr(self, name)
        file["convergence_delta"] = self.convergence_delta
        file["values"].attrs.update(axes="row, agent, feature", units=self.units)

    def _repr_html_(self) -> str:
        notes = "".join(f"<p style='color:#b00020'><b>NOT TO BE TRUSTED:</b> {note}</p>" for note in self.warnings)
        return f"<p>{self!r}</p>{notes}{self.summary().to_html(index=False, float_format='%.3g')}"

    def __repr__(self) -> str:
        n_rows, n_agents, n_features = self.values.shape
        flag = "".join(f"; NOT TO BE TRUSTED: {note}" for note in self.warnings)
        return (
            f"Attribution({self.method}, {self.target}, {self.group}: {n_rows} rows x {n_agents} agents x "
            f"{n_features} features, {self.units}{flag})"
        )


_ARRAYS = ("values", "score", "baseline_score", "episode", "t", "baseline")
