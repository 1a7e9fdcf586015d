"""A dry run of a few steps: finds out what there is to record and how long a step takes, before a file exists."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv
from marlnb.models.hooks import episode_context
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.actors import GroupActor, agrees
from marlnb.recording.capture.config import RecordingConfig
from marlnb.recording.capture.critics import GroupCritic
from marlnb.recording.capture.labels import BuiltInLabels
from marlnb.recording.capture.recompute import in_critic
from marlnb.recording.capture.schema import GroupInputs, RecordingSchema
from marlnb.recording.capture.sources import (
    Selection,
    Source,
    T,
    computes_labels_later,
    observation_dims,
    recurrent_site,
    step_sources,
    time_step_sources,
)
from marlnb.recording.file.frames import compress
from marlnb.recording.file.layout import Field, check_float16
from marlnb.specs import EnvSpec
from marlnb.training.collect.episodes import TimeStep, play

N_COMPARED_STEPS = 3  # at which captured activations are compared with recomputed ones
MIN_TIMED_STEPS = 20
MAX_DURATION_S = 2.0


@dataclass(frozen=True)
class DryRun:
    """What a few steps showed.

    Attributes:
        schema: what is to be recorded.
        step_s: seconds for one step of all envs, without recording.
        max_steps: an episode's longest length where the environment states it, else the longest seen so far.
        captured: groups whose actor sites hooks must capture, because they cannot be recomputed.
        frame_shape: of one rendered image; empty without frames.
        frame_bytes: of one compressed image; 0 without frames.
    """

    schema: RecordingSchema
    step_s: float
    max_steps: int
    captured: frozenset[str] = frozenset()
    frame_shape: tuple[int, ...] = ()
    frame_bytes: int = 0


def dry_run(
    env: VectorEnv,
    policies: Mapping[str, Policy],
    selections: Sequence[Selection],
    sites: Sequence[Site],
    activations: dict[str, Tensor],
    config: RecordingConfig,
    hooked: set[str],
) -> DryRun:
    """Plays a few steps under the config's seed. The environment must be reset afterwards.

    Args:
        activations: filled by `capture`.
        hooked: groups whose policies have hooks, as edits install them; their output may depend on the time step.
    Raises:
        SiteError: a site did not fire.
        RecordingError: a label cannot be recorded, or activations exceed float16.
        EnvError: frames are requested and the environment cannot render.
    """
    callback = _DryRunCallback(config, policies, selections, sites, activations, hooked)
    try:
        play(env, policies, episodes=config.episodes, seed=config.seed, explore=False, callback=callback)
    except _Finished:
        pass
    finally:
        activations.clear()
    return DryRun(
        schema=callback.schema(env.spec),
        step_s=callback.elapsed_s / max(1, callback.n_timed_steps),
        max_steps=env.spec.max_steps or callback.max_steps,
        captured=frozenset(callback.captured),
        frame_shape=callback.frame_shape,
        frame_bytes=callback.frame_bytes,
    )


class _Finished(Exception):
    """Raised to end the dry run."""


@dataclass
class _DryRunCallback:
    """Learns from the first step what there is to record, and times the later ones."""

    config: RecordingConfig
    policies: Mapping[str, Policy]
    selections: Sequence[Selection]
    sites: Sequence[Site]
    activations: dict[str, Tensor]
    hooked: set[str]
    n_steps: int = 0
    n_timed_steps: int = 0
    n_ended: int = 0
    max_steps: int = 1
    elapsed_s: float = 0.0
    frame_shape: tuple[int, ...] = ()
    frame_bytes: int = 0
    _before: Sequence[Source] = ()
    _after: Sequence[Source] = ()
    _labels: BuiltInLabels | None = None
    _started_s: float = 0.0

    def __post_init__(self) -> None:
        self.captured = set(self.policies) if self.config.fill == "captured" else set(self.hooked)
        by_group = {item.group.name: (item, self._critic_sites(item.group.name)) for item in self.selections}
        self._critics = [
            GroupCritic(self.policies[name], item, sites, self.config.dtype)
            for name, (item, sites) in by_group.items()
            if sites
        ]

    def before_step(self, time_step: TimeStep) -> None:
        if self.n_steps < N_COMPARED_STEPS:
            self._compare(time_step)
            if self.config.dtype == "float16":
                check_float16({**self.activations, **self._in_critics(time_step)})
        self.n_steps += 1
        if self._before:
            return
        actor_sites = [site for site in self.sites if not in_critic(site.name)]
        labels, dtype = self.config.labels, self.config.dtype
        self._before = time_step_sources(
            time_step, self.selections, self.policies, actor_sites, self.activations, labels, dtype
        )
        if computes_labels_later(time_step.env):
            self._labels = BuiltInLabels(time_step, self.selections)
        if self.config.frames:
            image = time_step.env.render(0)
            self.frame_shape, self.frame_bytes = tuple(image.shape), len(compress(image))

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        if not self._after:
            self._after = step_sources(step, self.selections)
        self.max_steps = max(self.max_steps, int(time_step.t.max()) + 1)
        self.n_ended += int(step.done.sum())
        if self.n_steps <= N_COMPARED_STEPS:
            self._started_s = time.perf_counter()
            return
        self.n_timed_steps += 1
        self.elapsed_s = time.perf_counter() - self._started_s
        knows_length = time_step.env.spec.max_steps is not None or self.n_ended >= 2 * time_step.env.n_envs
        if (knows_length and self.n_timed_steps >= MIN_TIMED_STEPS) or self.elapsed_s > MAX_DURATION_S:
            raise _Finished

    def schema(self, spec: EnvSpec) -> RecordingSchema:
        """What is to be recorded, according to the steps so far."""
        critics, actors = [], []
        for selection in self.selections:
            name = selection.group.name
            policy, sites = self.policies[name], [site for site in self.sites if site.name.startswith(f"{name}/")]
            critic_sites = self._critic_sites(name)
            if critic_sites or (self.config.values and policy.has_critic):
                by_step = name in self.hooked
                critics.append(GroupCritic(policy, selection, critic_sites, self.config.dtype, by_step=by_step))
            actor_sites = [site for site in sites if not in_critic(site.name)]
            if actor_sites and name not in self.captured:
                actors.append(GroupActor(policy, selection, actor_sites, self.config.dtype))
        recomputed = {f"activations/{name}" for actor in actors for name in actor.names}
        before = [source for source in self._before if source.field.path not in recomputed]
        with_actors = {actor.selection.group.name for actor in actors}
        with_critics = any(not critic.by_step for critic in critics)
        context, inputs = _inputs(spec, before, self.policies, with_actors, with_critics)
        if self._labels is not None:
            context = [*context, self._labels.source]
        if self.config.every > 1:
            context = [*context, T]
        return RecordingSchema(
            self.selections, before, critics, self._after, context, inputs, self._labels, actors, spec.labels
        )

    def _critic_sites(self, group: str) -> list[Site]:
        return [site for site in self.sites if site.name.startswith(f"{group}/") and in_critic(site.name)]

    def _in_critics(self, time_step: TimeStep) -> dict[str, Tensor]:
        """What is recorded of the critics with recorded sites, besides values."""
        computed: dict[str, Tensor] = {}
        with episode_context.at(time_step.episode, time_step.t, time_step.alive):
            for critic in self._critics:
                outputs = critic.run_step(time_step.observation, time_step.state, None)
                names = [item.path.removeprefix("activations/") for item in critic.fields]
                computed |= dict(list(zip(names, outputs, strict=True))[1:])
        return computed

    def _compare(self, time_step: TimeStep) -> None:
        """Marks the groups whose recomputed activations differ from those that fired: hooks must capture them."""
        fired = dict(self.activations)
        for name in {site.group for site in self.sites} - self.captured:
            of_group = {site: values for site, values in fired.items() if site.startswith(f"{name}/")}
            if not agrees(self.policies[name], of_group, time_step.observation[name], time_step.recurrent[name]):
                self.captured.add(name)
        self.activations.update(fired)


def _inputs(
    spec: EnvSpec, before: Sequence[Source], policies: Mapping[str, Policy], with_actors: set[str], with_critics: bool
) -> tuple[list[Source], dict[str, GroupInputs]]:
    """Where each group's inputs are buffered, and the sources to buffer in addition to the recorded ones.

    Args:
        with_actors: groups whose actor sites are recomputed.
        with_critics: whether critics run over whole episodes.
    """
    recorded = {source.field.path: source.field for source in before}
    context: list[Source] = []

    def path_of(path: str, field: Field, get: Callable[[TimeStep], Any]) -> str:
        """The recorded field, if it holds all agents; otherwise a context field."""
        if path in recorded and recorded[path].shape == field.shape:
            return path
        context.append(Source(field, get))
        return field.path

    inputs: dict[str, GroupInputs] = {}
    for group in spec.groups:
        name, observation, n = group.name, group.observation, group.n_agents
        if not with_critics and name not in with_actors:
            continue
        dims, shape = observation_dims(observation.shape), (n, *observation.shape)
        field = Field(f"context/{name}/observation", dims, shape, observation.dtype)
        observation_path = path_of(f"steps/{name}/observation", field, _observation_of(name))
        recurrent_path, recurrent_shape = None, policies[name].recurrent_shape
        if name in with_actors and recurrent_shape is not None:
            field = Field(f"context/{name}/recurrent", ("agent", "layer", "unit"), (n, *recurrent_shape), "float32")
            path = f"recurrent/{name}/{recurrent_site(policies[name], 'actor')}"
            recurrent_path = path_of(path, field, _recurrent_of(name))
        inputs[name] = GroupInputs(observation_path, recurrent_path)
    return context, inputs


def _observation_of(group: str) -> Callable[[TimeStep], Tensor]:
    return lambda time_step: time_step.observation[group]


def _recurrent_of(group: str) -> Callable[[TimeStep], Any]:
    return lambda time_step: time_step.recurrent[group]
