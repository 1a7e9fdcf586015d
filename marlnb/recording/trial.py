"""A trial of a few steps: shows what there is to record and how fast the copies go, before a file exists."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.models.policy import Policy
from marlnb.models.sites import Site
from marlnb.recording.built_in_labels import BuiltInLabels
from marlnb.recording.critics import GroupCritic
from marlnb.recording.episode_recorder import Contents
from marlnb.recording.frames import compress
from marlnb.recording.layout import Field
from marlnb.recording.recompute import in_critic
from marlnb.recording.request import Request
from marlnb.recording.sources import Selection, Source, moment_sources, observation_dims, step_sources, tells_later
from marlnb.specs import EnvSpec
from marlnb.training.episodes import Moment, play

FEWEST_STEPS = 20
TRIAL_S = 2.0


@dataclass(frozen=True)
class Trial:
    """What a few steps showed.

    Attributes:
        step_s: seconds for one step of all copies, without recording.
        longest: steps of the longest episode seen, whether it ended or not; what an episode takes at most where the
            environment says so.
        frame_shape, frame_bytes: of one image, and of the same compressed; empty and 0 without frames.
    """

    contents: Contents
    step_s: float
    longest: int
    frame_shape: tuple[int, ...] = ()
    frame_bytes: int = 0


def try_steps(
    env: VectorEnv,
    policies: Mapping[str, Policy],
    selections: Sequence[Selection],
    sites: Sequence[Site],
    activations: dict[str, Tensor],
    request: Request,
) -> Trial:
    """Plays a few steps under the request's seed; the environment is to be reset afterwards.

    Raises:
        SiteError: a site did not fire.
        RecordingError: a label that cannot be recorded.
        EnvError: frames are asked for and there is no picture.
    """
    watcher = _Trial(request, policies, selections, sites, activations)
    try:
        play(env, policies, episodes=request.episodes, seed=request.seed, explore=False, watcher=watcher)
    except _Enough:
        pass
    finally:
        activations.clear()
    assert watcher.contents is not None
    return Trial(
        contents=watcher.contents,
        step_s=watcher.elapsed_s / max(1, watcher.steps),
        longest=env.spec.max_steps or watcher.longest,
        frame_shape=watcher.frame_shape,
        frame_bytes=watcher.frame_bytes,
    )


class _Enough(Exception):
    """The trial has seen what it needs."""


class _Trial:
    """A watcher that learns from the first step what there is to record, and times the others."""

    def __init__(
        self,
        request: Request,
        policies: Mapping[str, Policy],
        selections: Sequence[Selection],
        sites: Sequence[Site],
        activations: Mapping[str, Tensor],
    ) -> None:
        self.request, self.policies, self.selections = request, policies, selections
        self.sites, self.activations = sites, activations
        self.contents: Contents | None = None
        self.steps, self.ended, self.longest, self.elapsed_s = 0, 0, 1, 0.0
        self.frame_shape: tuple[int, ...] = ()
        self.frame_bytes = 0
        self._before: list[Source] = []
        self._labels: BuiltInLabels | None = None
        self._began = 0.0

    def before_step(self, moment: Moment) -> None:
        if self.contents is not None:
            return
        acting = [site for site in self.sites if not in_critic(site.name)]
        options = self.request.labels, self.request.dtype
        self._before = moment_sources(moment, self.selections, self.policies, acting, self.activations, *options)
        if tells_later(moment.env):
            self._labels = BuiltInLabels(moment, self.selections)
        if self.request.frames:
            image = moment.env.render(0)
            self.frame_shape, self.frame_bytes = tuple(image.shape), len(compress(image))

    def after_step(self, moment: Moment, step: Step) -> None:
        if self.contents is None:
            self.contents = self._contents(moment.env.spec, step)
            self._began = time.perf_counter()
            return
        self.steps += 1
        self.longest = max(self.longest, int(moment.t.max()) + 1)
        self.elapsed_s = time.perf_counter() - self._began
        self.ended += int(step.done.sum())
        knows_length = moment.env.spec.max_steps is not None or self.ended >= 2 * moment.env.n_envs
        if (knows_length and self.steps >= FEWEST_STEPS) or self.elapsed_s > TRIAL_S:
            raise _Enough

    def _contents(self, spec: EnvSpec, step: Step) -> Contents:
        critics = []
        for selection in self.selections:
            name = selection.group.name
            inside = [site for site in self.sites if in_critic(site.name) and site.name.startswith(f"{name}/")]
            if inside or (self.request.values and self.policies[name].has_critic):
                critics.append(GroupCritic(self.policies[name], selection, inside, self.request.dtype))
        context: list[Source] = []
        inputs: dict[str, str] = {}
        if any(not critic.by_step for critic in critics):
            context, inputs = _critic_inputs(spec, self.selections)
        if self._labels is not None:
            context = [*context, self._labels.source]
        after = step_sources(step, self.selections)
        return Contents(self.selections, self._before, critics, after, context, inputs, self._labels)


def _critic_inputs(spec: EnvSpec, selections: Sequence[Selection]) -> tuple[list[Source], dict[str, str]]:
    """Where each group's whole observation is found, and what must be buffered for that beyond what is recorded."""
    whole = {selection.group.name for selection in selections if selection.pick is None}
    context: list[Source] = []
    paths: dict[str, str] = {}
    for group in spec.groups:
        paths[group.name] = f"{'steps' if group.name in whole else 'context'}/{group.name}/observation"
        if group.name in whole:
            continue
        seen = group.observation
        field = Field(paths[group.name], observation_dims(seen.shape), (group.n_agents, *seen.shape), seen.dtype)
        context.append(Source(field, _observation_of(group.name)))
    return context, paths


def _observation_of(group: str) -> Callable[[Moment], Tensor]:
    return lambda moment: moment.observation[group]
