"""The result of an attribution: its values, how far they can be trusted, its tables and its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.attribution.convergence import (
    TOLERANCE,
    describe_convergence,
    not_converged,
    relative_to,
    unexplained_share,
)
from marlnb.analysis.attribution.faithfulness import Faithfulness
from marlnb.analysis.attribution.methods import METHODS
from marlnb.analysis.attribution.storage import BY_ROW, WHOLE, AttributionFile, attribution_path, read
from marlnb.analysis.data.row_condition import rows_note
from marlnb.analysis.results import Result, grid_table, strict_json
from marlnb.disk import replacing, writing
from marlnb.errors import AnalysisError

BLOCK_ROWS = 65536
N_NAMED = 3  # features in a verdict


@dataclass(frozen=True, eq=False, repr=False)
class Attribution(Result):
    """What each feature contributed to one output of each agent, at each row.

    Attributes:
        values: `[row, agent, feature]` in `units`; NaN where the agent was not acting. A feature is an observation's, a
            group of them, or a unit of `site`.
        score: `[row, agent]`, the output at the row.
        baseline_score: `[row, agent]`, the output at the baseline.
        episode: `[row]`.
        t: `[row]`.
        baseline: `[agent, feature]` of single features, or `[baseline, agent, feature]` where several were drawn.
        agents: the explained agents.
        feature_names: of the last axis.
        feature_agents: the agent that each feature belongs to, for sources="all", and for "state" where the state
            consists of observations; empty otherwise.
        group: the agents' group.
        to: kind of output, as `AttributionConfig.to`.
        target: the output in words.
        units: logits, nats, reward, action or activation.
        method: name of the method.
        n_steps: quadrature points; 0 for methods without a quadrature.
        baseline_name: the baseline in words.
        sources: own, all or state.
        origin: recording, checkpoint, experiment as JSON, code version, and a hash of the explained weights.
        site: whose units are the features; empty for observations.
        feature_groups: by group, the names of its features.
        tolerance: share of the output that may be unexplained.
        smooth: noisy copies averaged over.
        noise: standard deviation of their noise, as a share of each feature's; 0 without copies.
        seed: of everything that was drawn.
        n_samples: permutations or coalitions; 0 for methods that draw none.
        faithfulness: how well the values predict the output; measured where they need not add up.
        rows: the condition that chose the explained rows; empty: none. Rows that no agent meets are left out; values
            of agents that do not meet it are NaN.
        given: names of what a row and its baseline have in common; empty: nothing. `baseline` then has one for each
            class.
        file_warnings: warnings from the file, such as missing rows.
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
    noise: float = 0.0
    seed: int = 0
    n_samples: int = 0
    faithfulness: Faithfulness | None = None
    rows: str = ""
    given: tuple[str, ...] = ()
    file_warnings: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        return rows_note(self.rows)

    @property
    def feature_labels(self) -> tuple[str, ...]:
        """Names of the last axis, with the source agent's where there are sources: agents have features of one name."""
        if not self.feature_agents:
            return self.feature_names
        return tuple(f"{agent}: {name}" for agent, name in zip(self.feature_agents, self.feature_names))

    @property
    def complete(self) -> bool:
        """Whether the method guarantees that values add up to score - baseline_score."""
        return METHODS[self.method].complete and not self.smooth

    @property
    def convergence_delta(self) -> np.ndarray:
        """`[row, agent]`: the sum of the values minus (score - baseline_score); NaN unless `complete`."""
        if not self.complete:
            return np.full(self.score.shape, np.nan, np.float32)
        return self.values.sum(-1) - (self.score - self.baseline_score)

    @property
    def relative_delta(self) -> np.ndarray:
        """`[row, agent]`: |convergence_delta| / max(|score - baseline_score|, sum |values|).

        The denominator is at least a thousandth of its mean over the rows, so that a row at the baseline does not
        divide by zero.
        """
        size = np.maximum(np.abs(self.score - self.baseline_score), np.abs(self.values).sum(-1))
        return relative_to(size, self.convergence_delta)

    @property
    def warnings(self) -> tuple[str, ...]:
        messages = list(self.file_warnings)
        acting = np.isfinite(self.score) | np.isfinite(self.baseline_score)
        if not acting.any():
            return (*messages, "no agent was acting at any of these rows")
        finite = np.isfinite(self.score[acting]) & np.isfinite(self.values[acting]).all(-1)
        if not finite.all():
            messages.append(
                f"not finite at {int((~finite).sum())} of {len(finite)} rows of an agent that acts: its observation, "
                "state or baseline is not; tables and figures leave them out"
            )
        elif self.complete:
            unexplained = unexplained_share(self.relative_delta[acting])
            if unexplained > self.tolerance:
                advice = "raise n_steps" if self.n_steps else "use integrated_gradients"
                if self.site:
                    advice += f"; if that changes nothing, part of the output bypasses {self.site}"
                messages.append(not_converged(unexplained, self.tolerance, advice))
        if self.faithfulness is not None:
            messages += self.faithfulness.warnings
        scores = self.score[np.isfinite(self.score)]
        if len(scores) > 1 and float(np.ptp(scores)) == 0.0:
            messages.append("the output never varies over these rows")
        return tuple(messages)

    def summary(self) -> pd.DataFrame:
        """By agent and feature: mean, standard deviation and mean absolute value over rows, and its share of their sum.

        NaN for an agent that never acted. Values on disk are read block by block.
        """
        values = summarised(self.values)
        table = grid_table({"agent": self.agents}, {"feature": self.feature_names}, values)
        return table.assign(source=self.feature_agents * len(self.agents)) if self.feature_agents else table

    def to_pandas(self) -> pd.DataFrame:
        """One line per row and agent: episode, t, agent, score, convergence_delta, then a column per feature."""
        scores = {"score": self.score, "convergence_delta": self.convergence_delta}
        head = grid_table({"episode": self.episode, "t": self.t}, {"agent": self.agents}, scores)
        return pd.concat([head, pd.DataFrame(self.values.reshape(len(head), -1), columns=self.feature_labels)], axis=1)

    def by_source(self) -> dict[str, np.ndarray]:
        """By source agent, the values of its observation's features, `[row, agent, feature]`.

        Raises:
            AnalysisError: each agent's own observation was explained, or a state that belongs to no agent.
        """
        if not self.feature_agents:
            explained = "the environment's state" if self.sources == "state" else "each agent's own observation"
            raise AnalysisError(
                f"sources: {explained}; attribute(..., sources='all') explains every agent's observation"
            )
        owners = np.array(self.feature_agents)
        return {source: self.values[..., owners == source] for source in dict.fromkeys(self.feature_agents)}

    def influence(self) -> pd.DataFrame:
        """Mean over rows of the sum of |values| by agent (lines) and source agent (columns), in `units`.

        Raises:
            AnalysisError: as `by_source`.
        """
        self.by_source()
        sums = self.summary().groupby(["agent", "source"], sort=False)["mean_abs"].sum(min_count=1).unstack()
        return sums.rename_axis(columns=None).loc[list(self.agents), list(dict.fromkeys(self.feature_agents))]

    def save(self, path: str | Path | None = None, *, overwrite: bool = False) -> Path:
        """Writes HDF5; None: next to the recording, in `<recording>.attributions/`.

        Raises:
            AnalysisError: the file exists and `overwrite` is not set, or the attribution was not made from a recording.
        """
        target = Path(path) if path is not None else self._default_path()
        if target.exists() and not overwrite:
            raise AnalysisError(f"{target} exists; save(..., overwrite=True) would replace it")
        with writing(target, kind=AnalysisError), replacing(target) as part:
            with AttributionFile(part, self.meta(), self.arrays(), self.values.shape, overwrite=True) as file:
                file.append(self.values, self.score, self.baseline_score)
        return target

    @staticmethod
    def load(path: str | Path) -> Attribution:
        """Reads what `save`, or `attribute(save=...)`, wrote; values are mapped into memory and read when used.

        Raises:
            AnalysisError: there is no such file, or it is not an attribution.
        """
        meta, arrays, done, requested = read(path)
        content: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in (meta | arrays).items()}
        content["feature_groups"] = {name: tuple(members) for name, members in meta["feature_groups"].items()}
        content["faithfulness"] = None if meta["faithfulness"] is None else Faithfulness(**meta["faithfulness"])
        content["file_warnings"] = () if done == requested else (f"interrupted after {done} of {requested} rows",)
        return Attribution(**content)

    def meta(self) -> dict[str, Any]:
        """All fields but the arrays, as plain JSON."""
        names = [field.name for field in fields(self) if field.name not in (*BY_ROW, *WHOLE, "file_warnings")]
        plain = {name: getattr(self, name) for name in names}
        plain["faithfulness"] = None if self.faithfulness is None else asdict(self.faithfulness)
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in plain.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that are known before any row is explained."""
        return {name: getattr(self, name) for name in WHOLE}

    def to_json(self) -> dict[str, Any]:
        """Everything but the values by row, and their summary."""
        summary = self.summary().to_dict("records")
        return dict(strict_json({**self.meta(), "warnings": self.warnings, "summary": summary}))

    def table(self) -> pd.DataFrame:
        """The `summary`."""
        return self.summary()

    def _default_path(self) -> Path:
        if "recording" not in self.origin:
            raise AnalysisError("this attribution was not made from a recording: give save a path")
        target = self.target.replace(" ", "_").replace("/", "-")
        site = f"-{self.site.replace('/', '-')}" if self.site else ""
        name = f"{self.group}-{self.to}-{target}-{self.method}-{self.sources}{site}"
        return attribution_path(self.origin["recording"], name)

    @property
    def verdict(self) -> str:
        size = f"{len(self.values)} steps of {len(np.unique(self.episode))} episodes"
        summary = self.summary().assign(feature=self.feature_labels * len(self.agents))
        largest = largest_shares(summary)
        if not largest:
            return f"No agent of {self.group} acts at the explained steps; {size}."
        acting = ", ".join(summary.dropna(subset=["mean_abs"])["agent"].unique())
        return (
            f"The {self.target} of {acting} is attributed most to {largest} ({self.method}, baseline: "
            f"{self.baseline_name}); {self._control}; {size}; an attribution proves neither use nor, where it is 0, "
            "its absence."
        )

    @property
    def _control(self) -> str:
        """Whether the values add up to the output, or how well they predict it."""
        if self.complete:
            return describe_convergence(self.relative_delta, self.tolerance)
        return "its faithfulness was not measured" if self.faithfulness is None else self.faithfulness.describe()

    def _repr_table(self) -> pd.DataFrame:
        summary = self.summary().sort_values("mean_abs", ascending=False, ignore_index=True)
        return summary[
            [name for name in ("agent", "source", "feature", "mean", "mean_abs", "share") if name in summary]
        ]


def summarised(values: np.ndarray) -> dict[str, np.ndarray]:
    """Mean, standard deviation, mean absolute value and its share, each `[agent, feature]`.

    NaN for an agent that never acted. Values on disk are read block by block.

    Args:
        values: `[row, agent, feature]`; rows with a value that is not finite are left out.
    """
    n_agents, n_features = values.shape[1:]
    count, sums = np.zeros((n_agents, 1)), np.zeros((3, n_agents, n_features))
    for start in range(0, len(values), BLOCK_ROWS):
        block = np.asarray(values[start : start + BLOCK_ROWS], np.float64)
        finite = np.isfinite(block).all(-1, keepdims=True)
        block = np.where(finite, block, 0)
        count += finite.sum(0)
        sums += [block.sum(0), np.abs(block).sum(0), np.square(block).sum(0)]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, size, square = sums / count
        share = size / size.sum(-1, keepdims=True)
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
    return {"mean": mean, "std": deviation, "mean_abs": size, "share": share}


def largest_shares(summary: pd.DataFrame) -> str:
    """The features with the largest mean absolute values and their shares, in words; empty where no agent acted."""
    known = summary.dropna(subset=["mean_abs"])
    if known.empty:
        return ""
    by_feature = known.groupby("feature", sort=False)["mean_abs"].mean().sort_values(ascending=False)
    total = by_feature.sum()
    if not total:
        return "no feature by itself"
    return ", ".join(f"{name} {value / total:.0%}" for name, value in by_feature.head(N_NAMED).items())
