"""`AttributionConfig`: the options of an attribution, stated once for the function, the command and its help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from marlnb.analysis.attribution.feature_groups import Features
from marlnb.analysis.attribution.methods import METHODS, AttributionMethod
from marlnb.analysis.attribution.outputs import Target, To
from marlnb.config import option
from marlnb.errors import ConfigError
from marlnb.values import validate

Sources = Literal["own", "all", "state"]
NamedRow = tuple[str, int, str, int]
Baseline = (
    Literal["mean", "zero", "start", "distribution"]
    | NamedRow
    | np.ndarray
    | Tensor
    | Mapping[str, np.ndarray | Tensor | tuple[float, ...]]
)


@dataclass(frozen=True)
class AttributionConfig:
    """What is explained, by what, and how."""

    group: str = option(help="group of agents whose output is explained")
    to: To = option(
        "action",
        help="output: action (the logit of the action taken, summed over the components of a multi-discrete one; the "
        "mean of a continuous one), logit (of a fixed choice), log_prob (of the action taken, or of a fixed choice; "
        "nats), value (the critic's, in reward), unit (a hidden unit's activation)",
    )
    target: Target = option(
        None,
        help="index or name of the choice or component; (component, choice) for a multi-discrete logit; (site, unit) "
        "for a unit",
    )
    agent: str | None = option(None, help="one agent of the group; none: all")
    site: str | None = option(
        None, help="explain by this site's units instead of by observations; conductance needs one"
    )
    method: str = option("integrated_gradients", choices=tuple(METHODS), help="how values are computed")
    baseline: Baseline | None = option(
        None,
        help="what features are compared with: mean (over the recording's rows of living agents), zero, start (each "
        "agent's mean at its first row of each episode), distribution (rows drawn from the recording, over which "
        "values are averaged), a row as (episode, 3, t, 0), or in Python an array that broadcasts to [agent, feature], "
        "or for critics a mapping of arrays by group; none: mean, or distribution for gradient_shap and deeplift_shap. "
        "Zero is never assumed: it can be a real position",
    )
    features: Features = option(
        "each",
        help="each; auto (groups found in the features' names, such as own velocity or landmarks); in Python also "
        "named groups of globs, {'landmarks': ['landmark_*']}. Methods that perturb features change a group "
        "together; the values of other methods are summed over the group",
    )
    n_steps: int = option(50, help="quadrature points of integrated_gradients and conductance", ge=1, le=2_000)
    n_samples: int | None = option(
        None,
        help="permutations of shapley_value_sampling (none: 25) or coalitions of kernel_shap (none: all, or 256 plus "
        "two per feature)",
        ge=1,
        le=1_000_000,
    )
    n_baselines: int = option(16, help="rows drawn for baseline=distribution", ge=1, le=1_000_000)
    smooth: int = option(0, help="noisy copies of each row over which values are averaged; 0: none", ge=0, le=10_000)
    noise: float = option(0.1, help="standard deviation of the noise, as a share of each feature's", ge=0)
    sources: Sources | None = option(
        None,
        help="own (each agent's own observation), all (every agent's observation) or state (of values: the "
        "environment's state, with observations held fixed); none: state for a critic that reads nothing else, all for "
        "other values and for actors that read other agents' observations (gnn), own otherwise",
    )
    episodes: tuple[int, ...] | None = option(
        None, help="numbers of the explained episodes, in Python also a mask; none: all"
    )
    checkpoint: int | None = option(None, help="iteration, where the recording spans several checkpoints")
    steps: tuple[int, ...] | None = option(None, help="steps explained, counted from each episode's start; none: all")
    rows: str | None = option(
        None,
        help="condition on labels, features and time that an explained row meets, such as \"goal == 'red' and t < 5\"",
    )
    given: str | tuple[str, ...] | None = option(
        None,
        help="labels of classes, or action: the baseline of a row comes from the rows of the same class, so that "
        "values are what features add to what is given. For baseline=mean or distribution, and each agent's own "
        "observation",
    )
    batch_size: int = option(1024, help="rows read at once", ge=1)
    seed: int = option(0, help="of everything that is drawn", ge=0)

    def __post_init__(self) -> None:
        for name in ("episodes", "steps"):  # single numbers, ranges and arrays
            value = getattr(self, name)
            if value is not None and not isinstance(value, tuple):
                object.__setattr__(self, name, tuple(value) if isinstance(value, Iterable) else (value,))
        if isinstance(self.features, Mapping):
            features = {name: glob if isinstance(glob, str) else tuple(glob) for name, glob in self.features.items()}
            object.__setattr__(self, "features", features)
        validate(self)
        is_distribution = isinstance(self.baseline, str) and self.baseline == "distribution"
        if self.settings.baseline == "distribution" and not (self.baseline is None or is_distribution):
            raise ConfigError(
                f"method={self.method!r} averages over baseline='distribution'; got baseline={self.baseline!r}"
            )
        if self.given is not None and not (is_distribution or self.baseline is None or self.has_mean_baseline):
            raise ConfigError(f"given= needs baseline='mean' or 'distribution'; got baseline={self.baseline!r}")
        if self.settings.by_layer and self.smooth:
            raise ConfigError(
                f"{self.method} cannot be averaged over noisy copies: smooth must be 0; got {self.smooth}"
            )

    @property
    def has_mean_baseline(self) -> bool:
        return isinstance(self.baseline, str) and self.baseline == "mean"

    @property
    def settings(self) -> AttributionMethod:
        """The registered method."""
        return METHODS[self.method]

    @property
    def complete(self) -> bool:
        """Whether values add up to the output's difference from the baseline."""
        return self.settings.complete and not self.smooth
