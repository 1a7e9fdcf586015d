"""Attribution in the microscope: what features contributed to actions or values, computed in threads.

Whole episodes are attributed; meanwhile, or if an episode is too large, the step that is shown is attributed alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.methods import METHODS
from marlnb.analysis.attribution.result import Attribution
from marlnb.analysis.data.rows import RowSource
from marlnb.errors import MarlnbError
from marlnb.models.policies.policy import Policy
from marlnb.recording.tools.recorded_policies import policies_of
from marlnb.specs import ActionSpec
from marlnb.training.policies.policy_source import PolicySource
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.microscope.background import START_DELAY_S, BackgroundAnswers, Side, Sides
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.objects import FeatureObjects, main_observer
from marlnb.widgets.microscope.payload import Data, float_bytes

MAX_NUMBERS = 4_000_000  # of one group's attribution, unless the user asks for more: steps × agents × features
MAX_STEP_NUMBERS = 400_000  # of one group's attribution of a single step
MAX_FAST_NUMBERS = 100_000  # an episode this small is attributed so fast that no single step comes first
MAX_FEATURES = 40  # of an agent that are sent to the page, the largest first
To = Literal["action", "value"]
Request = tuple[To, str, int]
"""What is attributed, with which method, and the component of actions that have several."""
Inputs = tuple[Mapping[str, Policy], Mapping[str, np.ndarray]]
"""What every attribution of a side needs: the policies and the mean observations; reading them takes time."""


@dataclass(frozen=True, eq=False)
class EpisodeAttribution:
    """The attributions of an episode, or of one step of it, by group.

    Attributes:
        to: what is attributed.
        method: with which method.
        attributions: by group, as `mnb.attribute` returns them.
        reasons: by group without an attribution, why there is none.
        is_too_large: whether a group has none only because it is too large.
        step_indices: by group of which a single step was attributed, the index of that step.
    """

    to: To
    method: str
    attributions: Mapping[str, Attribution]
    reasons: Mapping[str, str]
    is_too_large: bool = False
    step_indices: Mapping[str, int] = field(default_factory=dict)

    def completed_by(self, step: EpisodeAttribution) -> EpisodeAttribution:
        """This attribution, with the single step for each group that has no attribution of the whole episode."""
        added = {group: one for group, one in step.attributions.items() if group not in self.attributions}
        return replace(
            self,
            attributions={**added, **self.attributions},
            reasons={group: reason for group, reason in self.reasons.items() if group not in added},
            step_indices={group: step.step_indices[group] for group in added},
        )


def is_explained_by_component(action: ActionSpec) -> bool:
    """Whether no single number stands for the action taken: a continuous one of several components."""
    return action.kind == "continuous" and action.n_components > 1


def explainable(view: EpisodeView) -> dict[tuple[To, int], str]:
    """What can be attributed, with its title: the action, or each component of continuous actions, and the value."""
    names = [group.spec.action.component_names for group in view.groups if is_explained_by_component(group.spec.action)]
    titles = [" / ".join(dict.fromkeys(name for name in of_groups if name)) for of_groups in zip_longest(*names)]
    actions: dict[tuple[To, int], str] = {("action", k): f"action {title}" for k, title in enumerate(titles)}
    return {**(actions or {("action", 0): "the action"}), ("value", 0): "the critic's value"}


def no_attribution(view: EpisodeView, to: To, method: str, reason: str) -> EpisodeAttribution:
    """An EpisodeAttribution without attributions, for one reason."""
    return EpisodeAttribution(to, method, {}, {group.name: reason for group in view.groups})


def attribute_episode(
    view: EpisodeView,
    policies: Mapping[str, Policy],
    *,
    to: To = "action",
    component: int = 0,
    method: str = AttributionConfig.method,
    baseline: Mapping[str, np.ndarray],
    index: int | None = None,
    max_numbers: int | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> EpisodeAttribution:
    """Attributes the episode's actions or values, group by group, relative to the mean observation of the recording.

    The mean is over all rows of the recording. With the mean of this episode, features that never change within an
    episode, such as a goal, would contribute nothing.

    Args:
        component: of continuous actions with several, the one whose mean is attributed.
        baseline: that mean, from `mean_observations`.
        index: of the only step to attribute; None: all steps.
        max_numbers: a group with more numbers is not attributed; None: MAX_NUMBERS, or MAX_STEP_NUMBERS.
        report: called with the progress as text.
    """
    attributions, reasons, is_too_large = {}, {}, False
    steps = view.t if index is None else view.t[index : index + 1]
    limit = (MAX_NUMBERS if index is None else MAX_STEP_NUMBERS) if max_numbers is None else max_numbers
    for number, group in enumerate(view.groups, 1):
        if len(steps) * len(group.agents) * len(group.features) > limit:
            is_too_large = True
            reasons[group.name] = (
                f"{len(group.features):,} features over {len(steps):,} steps take long: click Attribute anyway, or "
                "group the features with mnb.attribute(..., features={...}, episodes=[...])"
            )
            continue
        report(f"{group.name}, {number} of {len(view.groups)} groups")
        try:
            attributions[group.name] = attribute(
                view.recording,
                group=group.name,
                to=to,
                target=component if to == "action" and is_explained_by_component(group.spec.action) else None,
                method=method,
                baseline=None if METHODS[method].baseline == "distribution" else baseline,
                policies=policies,
                episodes=[view.episode],
                steps=None if index is None else steps.tolist(),
                checkpoint=view.checkpoint_of_several,
                progress=False,
            )
        except MarlnbError as error:
            reasons[group.name] = str(error)
    step_indices = {} if index is None else dict.fromkeys(attributions, index)
    return EpisodeAttribution(to, method, attributions, reasons, is_too_large, step_indices)


def mean_observations(view: EpisodeView) -> dict[str, np.ndarray]:
    """By group `[agent, feature]`, the mean over all rows of the recording in which the agent acts."""
    means = {}
    for group in view.groups:
        source = RowSource(view.recording, group.name)
        means[group.name] = source.mean_observation(group.name, source.rows(None)).numpy()
    return means


def attribution_payload(attribution: EpisodeAttribution, feature_objects: FeatureObjects | None = None) -> Data:
    """What a page draws, by agent: names and values `[time, feature]` of the largest features, and of objects.

    If a single step of a group was attributed, values are of that step and `at` is its index.
    """
    agents: Data = {}
    for group, of_group in attribution.attributions.items():
        for index, agent in enumerate(of_group.agents):
            data = _agent_payload(of_group, index, agent, feature_objects or {})
            agents[agent] = {**data, "at": attribution.step_indices.get(group)}
    reasons = dict(attribution.reasons)
    return {"to": attribution.to, "method": attribution.method, "agents": agents, "reasons": reasons}


def _agent_payload(attribution: Attribution, index: int, agent: str, feature_objects: FeatureObjects) -> Data:
    values = np.nan_to_num(np.asarray(attribution.values[:, index]))
    owners = attribution.feature_agents or (agent,) * values.shape[1]
    order = np.argsort(-np.abs(values).mean(axis=0), kind="stable")[:MAX_FEATURES]
    names = attribution.feature_names
    of_feature = [feature_objects.get(owner, {}).get(name) for owner, name in zip(owners, names)]
    labels = [name if owner == agent else f"{owner}: {name}" for name, owner in zip(names, owners)]
    objects = sorted({name for name in of_feature if name is not None})
    by_object = np.zeros((len(values), len(objects)))
    for k, name in enumerate(objects):
        by_object[:, k] = np.abs(values[:, [other == name for other in of_feature]]).sum(axis=1)
    return {
        "names": [labels[k] for k in order],
        "n_hidden": values.shape[1] - len(order),
        "values": float_bytes(values[:, order]),
        "objects": objects,
        "by_object": float_bytes(by_object),
        "target": attribution.target,
        "units": attribution.units,
        "warnings": list(attribution.warnings),
    }


class AttributionLoader:
    """Attributes whole episodes in a thread, and the step that is shown where the whole is missing or too large.

    Attributes:
        episodes: by side, the attribution of its whole episode; None if it is not there.
    """

    def __init__(self, answers: BackgroundAnswers, on_done: Callable[[], None]) -> None:
        self._answers, self._on_done = answers, on_done
        self._episode_worker, self._step_worker = LatestOnly(wait_s=START_DELAY_S), LatestOnly(wait_s=0.0)
        self._request: Request = ("action", AttributionConfig.method, 0)
        self._inputs_lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """Forgets everything about the sides that were shown before."""
        self._inputs: dict[Side, Inputs] = {}
        self._feature_objects: list[FeatureObjects | None] = [None] * len(self._answers.sides)
        self._clear()

    @property
    def is_too_large(self) -> bool:
        """Whether something was not attributed only because it is too large."""
        return any(episode is not None and episode.is_too_large for episode in self.episodes)

    @with_ui_lock
    def request(self, to: To, method: str, component: int = 0, max_numbers: int | None = None) -> None:
        """Attributes every side's actions or values (see `attribute_episode`)."""
        sides, request = self._answers.sides, (to, method, component)
        self._request = request
        self._clear()
        self._answers.request(self._episode_worker, lambda: self._attribute_all(sides, request, max_numbers))
        self.request_step()

    @with_ui_lock
    def request_step(self) -> None:
        """Attributes the step that is shown, of sides whose whole episode is not attributed yet or too large."""
        sides, request, t = self._answers.sides, self._request, self._answers.scope.t
        numbers = [number for number in range(len(sides)) if self._needs_step(number)]

        def attribute_step() -> None:
            for number in numbers:
                attribution = self._attribute(sides[number], request, index=min(t, len(sides[number].view.t) - 1))
                self._answers.apply(sides, partial(self._store, request, self._steps, number, attribution))

        if numbers:
            self._answers.request(self._step_worker, attribute_step)

    def set_feature_objects(self, number: int, feature_objects: FeatureObjects) -> None:
        """Called when it is known which features of a side describe which objects: attributions are sent again."""
        self._feature_objects[number] = feature_objects
        scope = self._answers.scope
        scope.explained = scope.explained or main_observer(feature_objects)
        self._show(number)

    def _clear(self) -> None:
        n = len(self._answers.sides)
        self.episodes: list[EpisodeAttribution | None] = [None] * n
        self._steps: list[EpisodeAttribution | None] = [None] * n

    def _needs_step(self, number: int) -> bool:
        episode, side = self.episodes[number], self._answers.sides[number]
        if episode is not None:
            return episode.is_too_large
        size = sum(len(side.view.t) * len(group.agents) * len(group.features) for group in side.view.groups)
        return size > MAX_FAST_NUMBERS and side.source is not None and not side.is_edited

    def _attribute_all(self, sides: Sides, request: Request, max_numbers: int | None) -> None:
        for number, side in enumerate(sides):
            report = partial(self._report, sides, side.title)
            attribution = self._attribute(side, request, max_numbers=max_numbers, report=report)
            if not self._answers.apply(sides, partial(self._store, request, self.episodes, number, attribution)):
                return
        self._answers.apply(sides, self._done)

    def _attribute(self, side: Side, request: Request, **options: Any) -> EpisodeAttribution:
        """`options`: index, max_numbers and report, as `attribute_episode` takes them."""
        to, method, component = request
        if side.source is None or side.is_edited:
            reason = side.unknown if side.source is None else "edited networks are not attributed"
            return no_attribution(side.view, to, method, reason)
        try:
            policies, baseline = self._read_inputs(side, side.source)
        except MarlnbError as error:
            return no_attribution(side.view, to, method, str(error))
        chosen: dict[str, Any] = {"to": to, "component": component, "method": method}
        return attribute_episode(side.view, policies, baseline=baseline, **chosen, **options)

    def _read_inputs(self, side: Side, source: PolicySource) -> Inputs:
        with self._inputs_lock:  # reads the whole recording, so only once
            inputs = self._inputs
            if side not in inputs:
                means = mean_observations(side.compared_with or side.view)
                if side.compared_with is None:
                    policies = policies_of(side.view.recording, source, side.view.origin)
                else:  # played just now, by this source
                    policies = source.policies(side.view.checkpoint)
                inputs[side] = (policies, means)
            return inputs[side]

    def _store(
        self, request: Request, target: list[EpisodeAttribution | None], number: int, attribution: EpisodeAttribution
    ) -> None:
        if request is self._request:  # the same object: results of an earlier request are dropped
            target[number] = attribution
            self._show(number)

    def _show(self, number: int) -> None:
        """Shows the attribution of a side's whole episode, or else of one step."""
        episode, step = self.episodes[number], self._steps[number]
        shown = episode.completed_by(step) if episode is not None and step is not None else episode or step
        if shown is not None:
            payload = attribution_payload(shown, self._feature_objects[number])
            self._answers.scope.put("attributions", number, payload)

    def _report(self, sides: Sides, title: str, text: str) -> None:
        self._answers.apply(sides, lambda: setattr(self._answers.scope, "working", f"attributing {title}: {text}"))

    def _done(self) -> None:
        self._answers.scope.working = ""
        self._on_done()
        if self.is_too_large:
            self.request_step()
