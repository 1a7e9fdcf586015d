"""The answer to an attribution: its values, how far they can be trusted, its tables and its file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.attribution.faithfulness import Faithfulness
from marlnb.analysis.attribution.methods import COMPLETE
from marlnb.analysis.attribution.storage import BY_ROW, WHOLE, AttributionFile, beside, read
from marlnb.analysis.plain_json import plain_json
from marlnb.analysis.results import doubts, shown_as_html
from marlnb.errors import AnalysisError

TOLERANCE, SMOOTH_TOLERANCE = 0.05, 0.01
"""Largest share of an explanation that may be missing at nineteen rows of twenty before it is called unconverged: of
networks with kinks (ReLU, a maximum), on which a quadrature converges slowly, and of smooth ones (tanh)."""

_BLOCK_ROWS = 65536


@dataclass(frozen=True, eq=False)
class Attribution:
    """What each feature contributed to one output of each agent, at each row.

    Attributes:
        values: `[row, agent, feature]`, in `units`; NaN where the agent was not acting. A feature is an observation's,
            a group of them (`feature_groups` has its members), or a unit of `site`.
        score, baseline_score: `[row, agent]`, the output at the observation and at the baseline.
        episode, t: `[row]`.
        baseline: `[agent, feature]` in single features, or `[baseline, agent, feature]` where several were drawn.
        feature_agents: for sources="all", the agent that observes each feature, for "state" whose observation it is of,
            where the state is made of them; empty otherwise.
        target: the output in words; units: logits, nats or reward.
        tolerance: share of an explanation that may be missing; smooth: noisy copies averaged over.
        faithfulness: how well the values tell what features do; measured where nothing promises that they add up.
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
    site: str = ""
    feature_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tolerance: float = TOLERANCE
    smooth: int = 0
    seed: int = 0
    n_samples: int = 0
    faithfulness: Faithfulness | None = None
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether the method promises that values add up to score - baseline_score."""
        return self.method in COMPLETE and not self.smooth

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
        found = list(self.notes)
        acting = np.isfinite(self.score) | np.isfinite(self.baseline_score)
        if not acting.any():
            return (*found, "no agent was acting at any of these rows")
        known = np.isfinite(self.score[acting]) & np.isfinite(self.values[acting]).all(-1)
        if not known.all():
            found.append(
                f"not finite at {int((~known).sum())} of {len(known)} rows of an agent that acts: what it observed, "
                "its state or the baseline is not; tables and figures leave them out"
            )
        elif self.complete:
            worst = float(np.quantile(self.relative_delta[acting], 0.95))
            if worst > self.tolerance:
                cure = "raise n_steps" if self.n_steps else "use integrated_gradients"
                if self.site:
                    cure += f"; if that changes nothing, some of the output goes past {self.site}"
                found.append(
                    f"did not converge: at one row of twenty {worst:.0%} or more of the output is unexplained "
                    f"(tolerated: {self.tolerance:.0%}); {cure}"
                )
        if self.faithfulness is not None:
            found += self.faithfulness.warnings
        scores = self.score[np.isfinite(self.score)]
        if len(scores) > 1 and float(np.ptp(scores)) == 0.0:
            found.append("the output never varies over these rows")
        return tuple(found)

    def summary(self) -> pd.DataFrame:
        """By agent and feature: mean, standard deviation and mean absolute value over rows, and the share of the sum
        of the latter; NaN for an agent that never acted. Values that lie on disk are read block by block."""
        count = np.zeros((len(self.agents), 1))
        sums = np.zeros((3, len(self.agents), len(self.feature_names)))
        for start in range(0, len(self.values), _BLOCK_ROWS):
            block = np.asarray(self.values[start : start + _BLOCK_ROWS], np.float64)
            known = np.isfinite(block).all(-1, keepdims=True)
            block = np.where(known, block, 0)
            count += known.sum(0)
            sums += [block.sum(0), np.abs(block).sum(0), np.square(block).sum(0)]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean, size, square = sums / count
            share = size / size.sum(-1, keepdims=True)
            deviation = np.sqrt(np.maximum(square - mean**2, 0))
        columns = {
            "agent": np.repeat(self.agents, len(self.feature_names)),
            "feature": list(self.feature_names) * len(self.agents),
            "mean": mean.ravel(),
            "std": deviation.ravel(),
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
            told = (
                "the environment's state, which is nobody's"
                if self.sources == "state"
                else "each agent's own observation"
            )
            raise AnalysisError(f"{told} was explained; attribute(..., sources='all') has every agent's observation")
        owners = np.array(self.feature_agents)
        return {source: self.values[..., owners == source] for source in dict.fromkeys(self.feature_agents)}

    def influence(self) -> pd.DataFrame:
        """Mean over rows of the sum of |values| by agent (lines) and source agent (columns), in `units`.

        Raises:
            AnalysisError: it was made for own observations only.
        """
        if not self.feature_agents:
            self.by_source()
        sums = self.summary().groupby(["agent", "source"], sort=False)["mean_abs"].sum(min_count=1).unstack()
        order = list(dict.fromkeys(self.feature_agents))
        return pd.DataFrame(sums.to_numpy(), index=pd.Index(sums.index, name="agent"), columns=list(sums.columns)).loc[
            list(self.agents), order
        ]

    def save(self, path: str | Path | None = None, *, overwrite: bool = False) -> Path:
        """Writes HDF5; None: beside the recording, in `<recording>.attributions/`.

        Raises:
            AnalysisError: the file exists and `overwrite` is not set, or there is no recording to lie beside.
        """
        target = Path(path) if path is not None else self._beside_recording()
        if target.exists() and not overwrite:
            raise AnalysisError(f"{target} exists already; save(..., overwrite=True) would replace it")
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            file = AttributionFile(part, self.meta(), self.arrays(), self.values.shape, overwrite=True)
            file.add(self.values, self.score, self.baseline_score)
            file.close(complete=True)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
        return target

    @staticmethod
    def load(path: str | Path) -> Attribution:
        """Reads what `save`, or `attribute(save=...)`, wrote; values are mapped into memory, and read when looked at.

        Raises:
            AnalysisError: there is no such file, or it is not an attribution.
        """
        meta, arrays, done, asked = read(path)
        lists = {name: tuple(value) for name, value in meta.items() if isinstance(value, list)}
        groups = {name: tuple(members) for name, members in meta["feature_groups"].items()}
        faithfulness = None if meta["faithfulness"] is None else Faithfulness(**meta["faithfulness"])
        notes = () if done == asked else (f"broke off after {done} of {asked} rows",)
        return Attribution(
            **{**meta, **lists, **arrays, "feature_groups": groups, "faithfulness": faithfulness, "notes": notes}
        )

    def meta(self) -> dict[str, Any]:
        """All but the arrays, as plain JSON."""
        others = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in (*BY_ROW, *WHOLE, "notes")}
        told = {"faithfulness": None if self.faithfulness is None else self.faithfulness.to_json()}
        return {name: dict(x) if isinstance(x, Mapping) else x for name, x in {**others, **told}.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that are known before any row is explained."""
        return {name: getattr(self, name) for name in WHOLE}

    def to_json(self) -> dict[str, Any]:
        """Everything but the values by row, and their summary."""
        told = {"warnings": list(self.warnings), "summary": self.summary().to_dict("records")}
        found: dict[str, Any] = plain_json({**self.meta(), **told})
        return found

    def table(self) -> pd.DataFrame:
        """As `summary`."""
        return self.summary()

    def _beside_recording(self) -> Path:
        if "recording" not in self.origin:
            raise AnalysisError("this attribution was not made from a recording: give save a path")
        what = self.target.replace(" ", "_").replace("/", "-")
        by = f"-{self.site.replace('/', '-')}" if self.site else ""
        return beside(self.origin["recording"], f"{self.group}-{self.to}-{what}-{self.method}-{self.sources}{by}")

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings, self.summary())

    def __repr__(self) -> str:
        n_rows, n_agents, n_features = self.values.shape
        flag = doubts(self.warnings)
        return (
            f"Attribution({self.method}, {self.target}, {self.group}: {n_rows} rows x {n_agents} agents x "
            f"{n_features} features, {self.units}{flag})"
        )
