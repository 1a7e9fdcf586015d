"""A trial of a few steps: shows what there is to record and how fast the copies go, before a file exists."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import RecordingError
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.actors import GroupActor, agrees
from marlnb.recording.capture.built_in_labels import BuiltInLabels
from marlnb.recording.capture.critics import GroupCritic
from marlnb.recording.capture.recompute import in_critic
from marlnb.recording.capture.request import Request
from marlnb.recording.capture.schema import Contents, Inputs
from marlnb.recording.capture.sources import (
    Selection,
    Source,
    T,
    moment_sources,
    observation_dims,
    recurrent_site,
    step_sources,
    tells_later,
)
from marlnb.recording.file.frames import compress
from marlnb.recording.file.layout import Field
from marlnb.specs import EnvSpec
from marlnb.training.collect.episodes import TimeStep, play

COMPARED = 3
FEWEST_STEPS = 20
TRIAL_S = 2.0


@dataclass(frozen=True)
class Trial:
    """What a few steps showed.

    Attributes:
        step_s: seconds for one step of all copies, without recording.
        longest: steps of the longest episode seen, whether it ended or not; what an episode takes at most where the
            environment says so.
        captured: groups whose actors' sites must be captured as they fire, since they cannot be told later.
        frame_shape, frame_bytes: of one image, and of the same compressed; empty and 0 without frames.
    """

    contents: Contents
    step_s: float
    longest: int
    captured: frozenset[str] = frozenset()
    frame_shape: tuple[int, ...] = ()
    frame_bytes: int = 0


def try_steps(
    env: VectorEnv,
    policies: Mapping[str, Policy],
    selections: Sequence[Selection],
    sites: Sequence[Site],
    activations: dict[str, Tensor],
    request: Request,
    hooked: set[str],
) -> Trial:
    """Plays a few steps under the request's seed; the environment is to be reset afterwards.

    Args:
        activations: what `capture` fills.
        hooked: groups in whose policies something acts that may depend on the moment, as edits do.
    Raises:
        SiteError: a site did not fire.
        RecordingError: a label that cannot be recorded; activations beyond what float16 holds.
        EnvError: frames are asked for and there is no picture.
    """
    callback = _Trial(request, policies, selections, sites, activations, hooked)
    try:
        play(env, policies, episodes=request.episodes, seed=request.seed, explore=False, callback=callback)
    except _Enough:
        pass
    finally:
        activations.clear()
    return Trial(
        contents=callback.contents(env.spec),
        step_s=callback.elapsed_s / max(1, callback.steps),
        longest=env.spec.max_steps or callback.longest,
        captured=frozenset(callback.captured),
        frame_shape=callback.frame_shape,
        frame_bytes=callback.frame_bytes,
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
        activations: dict[str, Tensor],
        hooked: set[str],
    ) -> None:
        self.request, self.policies, self.selections = request, policies, selections
        self.sites, self.activations = sites, activations
        self.hooked = hooked
        self.captured = set(policies) if request.fill == "captured" else set(hooked)
        self.moments = 0
        self.steps, self.ended, self.longest, self.elapsed_s = 0, 0, 1, 0.0
        self.frame_shape: tuple[int, ...] = ()
        self.frame_bytes = 0
        self._before: list[Source] = []
        self._after: list[Source] = []
        self._labels: BuiltInLabels | None = None
        self._began = 0.0

    def before_step(self, time_step: TimeStep) -> None:
        if self.moments < COMPARED:
            self._compare(time_step)
            self._check_range()
        self.moments += 1
        if self._before:
            return
        acting = [site for site in self.sites if not in_critic(site.name)]
        options = self.request.labels, self.request.dtype
        self._before = moment_sources(time_step, self.selections, self.policies, acting, self.activations, *options)
        if tells_later(time_step.env):
            self._labels = BuiltInLabels(time_step, self.selections)
        if self.request.frames:
            image = time_step.env.render(0)
            self.frame_shape, self.frame_bytes = tuple(image.shape), len(compress(image))

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        if not self._after:
            self._after = step_sources(step, self.selections)
        self.longest = max(self.longest, int(time_step.t.max()) + 1)
        self.ended += int(step.done.sum())
        if self.moments <= COMPARED:
            self._began = time.perf_counter()
            return
        self.steps += 1
        self.elapsed_s = time.perf_counter() - self._began
        knows_length = time_step.env.spec.max_steps is not None or self.ended >= 2 * time_step.env.n_envs
        if (knows_length and self.steps >= FEWEST_STEPS) or self.elapsed_s > TRIAL_S:
            raise _Enough

    def contents(self, spec: EnvSpec) -> Contents:
        """What is to be recorded, by what the steps showed."""
        critics, actors = [], []
        for selection in self.selections:
            name = selection.group.name
            policy, own = self.policies[name], [site for site in self.sites if site.name.startswith(f"{name}/")]
            inside = [site for site in own if in_critic(site.name)]
            if inside or (self.request.values and policy.has_critic):
                by_step = name in self.hooked
                critics.append(GroupCritic(policy, selection, inside, self.request.dtype, by_step=by_step))
            acting = [site for site in own if not in_critic(site.name)]
            if acting and name not in self.captured:
                actors.append(GroupActor(policy, selection, acting, self.request.dtype))
        late = {f"activations/{name}" for actor in actors for name in actor.names}
        before = [source for source in self._before if source.field.path not in late]
        judged = any(not critic.by_step for critic in critics)
        context, inputs = _inputs(spec, before, self.policies, {actor.selection.group.name for actor in actors}, judged)
        if self._labels is not None:
            context = [*context, self._labels.source]
        if self.request.every > 1:
            context = [*context, T]
        return Contents(self.selections, before, critics, self._after, context, inputs, self._labels, actors)

    def _check_range(self) -> None:
        """Refuses float16 where it would hold infinities in place of what fires."""
        if self.request.dtype != "float16":
            return
        most = torch.finfo(torch.float16).max
        for name, values in self.activations.items():
            largest = float(values.abs().max()) if values.numel() else 0.0
            if most < largest < float("inf"):
                raise RecordingError(
                    f"{name} reaches {largest:.3g}, and float16 ends at {most:.3g}: record with dtype='bfloat16' or "
                    "'float32'"
                )

    def _compare(self, time_step: TimeStep) -> None:
        """Groups whose activations are not what `recompute` makes of the moment are to be captured as they fire."""
        fired = dict(self.activations)
        for name in {site.name.split("/")[0] for site in self.sites} - self.captured:
            own = {site: values for site, values in fired.items() if site.startswith(f"{name}/")}
            if not agrees(self.policies[name], own, time_step.observation[name], time_step.recurrent[name]):
                self.captured.add(name)
        self.activations.update(fired)


def _inputs(
    spec: EnvSpec, before: Sequence[Source], policies: Mapping[str, Policy], acting: set[str], judged: bool
) -> tuple[list[Source], dict[str, Inputs]]:
    """Where each group's whole inputs are found, and what must be buffered for that beyond what is recorded.

    Args:
        acting: groups whose actors' sites are computed; judged: whether critics are run over whole episodes.
    """
    recorded = {source.field.path: source.field for source in before}
    context: list[Source] = []

    def whole(path: str, field: Field, get: Callable[[TimeStep], Any]) -> str:
        if path in recorded and recorded[path].shape == field.shape:
            return path
        context.append(Source(field, get, path.startswith("recurrent/")))
        return field.path

    found: dict[str, Inputs] = {}
    for group in spec.groups:
        name, seen, n = group.name, group.observation, group.n_agents
        if not judged and name not in acting:
            continue
        field = Field(f"context/{name}/observation", observation_dims(seen.shape), (n, *seen.shape), seen.dtype)
        observation, recurrent = whole(f"steps/{name}/observation", field, _observation_of(name)), None
        shape = policies[name].recurrent_shape
        if name in acting and shape is not None:
            field = Field(f"context/{name}/recurrent", ("agent", "layer", "unit"), (n, *shape), "float32")
            path = f"recurrent/{name}/{recurrent_site(policies[name], 'actor')}"
            recurrent = whole(path, field, _recurrent_of(name))
        found[name] = Inputs(observation, recurrent)
    return context, found


def _observation_of(group: str) -> Callable[[TimeStep], Tensor]:
    return lambda time_step: time_step.observation[group]


def _recurrent_of(group: str) -> Callable[[TimeStep], Any]:
    return lambda time_step: time_step.recurrent[group]
