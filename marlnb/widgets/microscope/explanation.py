"""What each observed feature contributed to what an agent did, over one episode: `mnb.attribute` on that episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from marlnb.analysis.attribution import attribute
from marlnb.analysis.attribution_result import Attribution
from marlnb.analysis.methods import Method
from marlnb.analysis.rows import RowSource
from marlnb.errors import MarlnbError
from marlnb.models.policy import Policy
from marlnb.widgets.microscope.episode_view import EpisodeView

MOST_NUMBERS = 4_000_000  # of one group's explanation, unless it is asked for: steps × agents × features
To = Literal["action", "value"]


@dataclass(frozen=True, eq=False)
class Explanation:
    """By group, what was found, or why nothing was.

    Attributes:
        to, method: what was asked. found: the attributions, as `mnb.attribute` gave them.
        refused: by group, in words. too_large: whether some group was refused for its size alone.
    """

    to: To
    method: Method
    found: Mapping[str, Attribution]
    refused: Mapping[str, str]
    too_large: bool = False


def refused(view: EpisodeView, to: To, method: Method, why: str) -> Explanation:
    """Nothing is explained, of no group."""
    return Explanation(to, method, {}, {group.name: why for group in view.groups})


def explain(
    view: EpisodeView,
    policies: Mapping[str, Policy],
    *,
    to: To = "action",
    method: Method = "integrated_gradients",
    compared_with: EpisodeView | None = None,
    most: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Attributes the episode's actions or values, group by group, against the mean observation of the recording.

    The mean is over all of the recording's rows and not this episode's: what never changes within an episode, as a
    goal, would otherwise explain nothing.

    Args:
        compared_with: an episode of the recording whose mean is meant, where it is not the view's own.
        most: numbers of a group's attribution beyond which it is refused; None: MOST_NUMBERS.
        tell: called with how far it is.
    """
    baseline = mean_observations(compared_with or view)
    found, refused, too_large = {}, {}, False
    for place, group in enumerate(view.groups, 1):
        size = len(view.t) * len(group.agents) * len(group.features)
        if size > (MOST_NUMBERS if most is None else most):
            too_large = True
            refused[group.name] = (
                f"{len(group.features):,} features over {len(view.t):,} steps are explained when they are asked for: "
                "Explain anyway; mnb.attribute(..., features={...}, episodes=[...]) takes them in groups"
            )
            continue
        tell(f"{group.name}, {place} of {len(view.groups)} groups")
        try:
            several = len(view.recording.checkpoints["iteration"].unique()) > 1
            found[group.name] = attribute(
                view.recording,
                group=group.name,
                to=to,
                method=method,
                baseline=None if method in ("gradient_shap", "deeplift_shap") else baseline,
                policies=policies,
                episodes=[view.episode],
                checkpoint=view.checkpoint if several else None,
                progress=False,
            )
        except MarlnbError as error:
            refused[group.name] = str(error)
    return Explanation(to, method, found, refused, too_large)


def mean_observations(view: EpisodeView) -> dict[str, np.ndarray]:
    """By group `[agent, feature]`, over all living rows of the recording."""
    means = {}
    for group in view.groups:
        source = RowSource(view.recording, group.name)
        means[group.name] = source.mean_observation(group.name, source.rows(None)).numpy()
    return means
