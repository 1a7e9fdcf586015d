"""What each observed feature contributed to what an agent did: `mnb.attribute` on one episode, or on one step of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.attribution.methods import Method
from marlnb.analysis.attribution.result import Attribution
from marlnb.analysis.data.rows import RowSource
from marlnb.errors import MarlnbError
from marlnb.models.policies.policy import Policy
from marlnb.widgets.microscope.episode_view import EpisodeView

MOST_NUMBERS = 4_000_000  # of one group's explanation, unless it is asked for: steps × agents × features
MOST_OF_STEP = 400_000  # of one group's single step
To = Literal["action", "value"]


@dataclass(frozen=True, eq=False)
class Explanation:
    """By group, what was found, or why nothing was.

    Attributes:
        to, method: what was asked. found: the attributions, as `mnb.attribute` gave them.
        refused: by group, in words. too_large: whether some group was refused for its size alone.
        at: by group of which a single step was explained, the place of that step.
    """

    to: To
    method: Method
    found: Mapping[str, Attribution]
    refused: Mapping[str, str]
    too_large: bool = False
    at: Mapping[str, int] = field(default_factory=dict)

    def filled_by(self, step: Explanation) -> Explanation:
        """With a single step of each group whose whole episode is not explained."""
        more = {group: found for group, found in step.found.items() if group not in self.found}
        return replace(
            self,
            found={**more, **self.found},
            refused={group: why for group, why in self.refused.items() if group not in more},
            at={group: step.at[group] for group in more},
        )


def refused(view: EpisodeView, to: To, method: Method, why: str) -> Explanation:
    """Nothing is explained, of no group."""
    return Explanation(to, method, {}, {group.name: why for group in view.groups})


def explain(
    view: EpisodeView,
    policies: Mapping[str, Policy],
    *,
    to: To = "action",
    method: Method = "integrated_gradients",
    baseline: Mapping[str, np.ndarray],
    place: int | None = None,
    most: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Attributes the episode's actions or values, group by group, against the mean observation of the recording.

    The mean is over all of the recording's rows and not this episode's: what never changes within an episode, as a
    goal, would otherwise explain nothing.

    Args:
        baseline: that mean, as `mean_observations` has it.
        place: of the only step that is explained, among the view's steps; None: all of them are.
        most: numbers of a group's attribution beyond which it is refused; None: MOST_NUMBERS, or MOST_OF_STEP.
        tell: called with how far it is.
    """
    found, refused, too_large = {}, {}, False
    steps = view.t if place is None else view.t[place : place + 1]
    allowed = (MOST_NUMBERS if place is None else MOST_OF_STEP) if most is None else most
    for number, group in enumerate(view.groups, 1):
        if len(steps) * len(group.agents) * len(group.features) > allowed:
            too_large = True
            refused[group.name] = (
                f"{len(group.features):,} features over {len(steps):,} steps are explained when they are asked for: "
                "Explain anyway; mnb.attribute(..., features={...}, episodes=[...]) takes them in groups"
            )
            continue
        tell(f"{group.name}, {number} of {len(view.groups)} groups")
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
                steps=None if place is None else steps.tolist(),
                checkpoint=view.checkpoint if several else None,
                progress=False,
            )
        except MarlnbError as error:
            refused[group.name] = str(error)
    return Explanation(to, method, found, refused, too_large, {} if place is None else dict.fromkeys(found, place))


def mean_observations(view: EpisodeView) -> dict[str, np.ndarray]:
    """By group `[agent, feature]`, over all living rows of the recording."""
    means = {}
    for group in view.groups:
        source = RowSource(view.recording, group.name)
        means[group.name] = source.mean_observation(group.name, source.rows(None)).numpy()
    return means
