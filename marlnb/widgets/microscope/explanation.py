"""What each observed feature contributed to what an agent did, over one episode: `mnb.attribute` on that episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from marlnb.analysis.attribution import attribute
from marlnb.analysis.attribution_result import Attribution
from marlnb.analysis.methods import Method
from marlnb.analysis.rows import RowSource
from marlnb.errors import AnalysisError, MarlnbError
from marlnb.models.policy import Policy
from marlnb.widgets.microscope.episode_view import EpisodeView

MOST_NUMBERS = 4_000_000  # of one group's explanation: steps × agents × features
To = Literal["action", "value"]


@dataclass(frozen=True, eq=False)
class Explanation:
    """By group, what was found, or why nothing was.

    Attributes:
        to, method: what was asked. found: the attributions, as `mnb.attribute` gave them.
        refused: by group, in words.
    """

    to: To
    method: Method
    found: Mapping[str, Attribution]
    refused: Mapping[str, str]


def explain(
    view: EpisodeView,
    policies: Mapping[str, Policy],
    *,
    to: To = "action",
    method: Method = "integrated_gradients",
    compared_with: EpisodeView | None = None,
) -> Explanation:
    """Attributes the episode's actions or values, group by group, against the mean observation of the recording.

    The mean is over all of the recording's rows and not this episode's: what never changes within an episode, as a
    goal, would otherwise explain nothing.

    Args:
        compared_with: an episode of the recording whose mean is meant, where it is not the view's own.
    """
    baseline = mean_observations(compared_with or view)
    found, refused = {}, {}
    for group in view.groups:
        size = len(view.t) * len(group.agents) * len(group.features)
        try:
            if size > MOST_NUMBERS:
                raise AnalysisError(
                    f"{len(group.features):,} features over {len(view.t):,} steps are not explained at once; "
                    "mnb.attribute(..., features={...}, episodes=[...]) takes them in groups"
                )
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
    return Explanation(to, method, found, refused)


def mean_observations(view: EpisodeView) -> dict[str, np.ndarray]:
    """By group `[agent, feature]`, over all living rows of the recording."""
    means = {}
    for group in view.groups:
        source = RowSource(view.recording, group.name)
        means[group.name] = source.mean_observation(group.name, source.rows(None)).numpy()
    return means
