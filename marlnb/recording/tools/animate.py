"""animate: one episode as pictures that play, of a run, of agents from elsewhere, or of a recording."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from os import PathLike

import numpy as np
from PIL import Image
from torch import Tensor

from marlnb.config import EnvConfig
from marlnb.display.formatting import count, format_number
from marlnb.envs.vector import Step, VectorEnv
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import ConfigError, RecordingError
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.edit import Edit, edit_list
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.scripted import NoOpPolicy
from marlnb.recording.file.opened import opened_if_file
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.animation import Animation
from marlnb.recording.tools.recorded_env import check_env
from marlnb.recording.tools.recorded_policies import edits_of, origin_of, policies_of, source_of
from marlnb.recording.tools.replay import check_start, recorded_actions
from marlnb.specs import SEED_SPAN
from marlnb.training.collect.episodes import TimeStep, play
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.evaluation import action_generator
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source
from marlnb.training.runs.run_folder import Which
from marlnb.trust import loaded

SEED = 1000
"""Of episode 0, as for `intervene`."""


def animate(
    source: Recording | PolicySourceLike,
    episode: int = 0,
    *,
    path: str | PathLike[str] | None = None,
    seed: int | None = None,
    explore: bool | None = None,
    checkpoint: Which | None = None,
    edits: Edit | Sequence[Edit] | None = None,
    env: EnvConfig | None = None,
    policy_source: PolicySourceLike | None = None,
    steps_per_s: float = 10.0,
    max_width: int = 480,
    max_steps: int = 1000,
) -> Animation:
    """The pictures of one episode: in a notebook they play, and `save` writes a GIF, an MP4 or a page of HTML.

    A recorded episode is shown from its frames where it has any; otherwise its recorded actions are played
    again in its environment.

    There is a picture before each step, and one after the last. Recorded frames have none after the last step.

    Args:
        source: a recording or its path, a run, its folder, or other agents.
        episode: its number. A run plays the episode with the seed `seed + episode`.
        path: also write it to this file, `.gif`, `.mp4` (needs ffmpeg) or `.html`.
        seed: of a run's episode 0; None: 1000.
        explore: of a run: sample actions; None: take the most likely ones.
        checkpoint: of a run; None: the last one.
        edits: one or several of a run's policies, in force during the episode.
        env: another environment, as for `evaluate`; for a recording its own, where `policy_source` has another.
        policy_source: of a recording: whose policies were recorded, where the file is in no run folder.
        steps_per_s: how fast it plays.
        max_width: of the pictures, in pixels; larger ones are scaled down.
        max_steps: a longer episode is cut off after this many pictures.
    Raises:
        ConfigError: an option out of range, or one that a recording cannot have.
        RecordingError: the recording has no such episode, or cannot be played again: see `replay`.
        EnvBuildError, EnvError: the environment cannot be drawn.
    """
    if episode < 0 or not steps_per_s > 0 or max_width < 16 or max_steps < 1:
        raise ConfigError(
            "episode must be 0 or more, steps_per_s above 0, max_width 16 or more and max_steps 1 or more; got "
            f"{episode}, {steps_per_s}, {max_width} and {max_steps}"
        )
    camera, source = Camera(max_width, max_steps), opened_if_file(source)
    if isinstance(source, Recording):
        options = {"seed": seed, "explore": explore, "checkpoint": checkpoint, "edits": edits}
        if given := [name for name, value in options.items() if value is not None]:
            raise ConfigError(f"{', '.join(given)}: not valid for a recorded episode; give a run to play another one")
        title = _take_recorded(camera, source, episode, policy_source, env)
    else:
        start = SEED if seed is None else seed
        applied = edit_list(edits or ())
        title = _take_played(
            camera, as_policy_source(source), (start + episode) % SEED_SPAN, bool(explore), checkpoint, applied, env
        )
    animation = Animation(camera.frames, camera.captions, title=title, steps_per_s=steps_per_s, note=camera.note)
    if path is not None:
        animation.save(path)
    return animation


def rendering_env(source: PolicySource, env: EnvConfig | None) -> EnvConfig | None:
    """The environment with rendering and in this process, if these are options; None: the source's own as it is."""
    config = env or (loaded(source.experiment.env, "env") if source.experiment is not None else None)
    names = {item.name for item in fields(config)} if config is not None else set()
    options = {name: value for name, value in (("render", True), ("workers", 0)) if name in names}
    return replace(config, **options) if config is not None and options else env  # type: ignore[arg-type]


class _LongEnough(Exception):
    """Ends an episode that is longer than what is shown."""


class Camera:
    """A RolloutCallback that takes a picture of env 0 before each step.

    Attributes:
        frames: PNG.
        captions: the step and the return so far.
        returns: by group, `[agent]`, before the last step that was seen.
        note: whether the episode continues.
    """

    def __init__(self, max_width: int, max_steps: int) -> None:
        self.max_width, self.max_steps = max_width, max_steps
        self.frames: list[bytes] = []
        self.captions: list[str] = []
        self.note = ""

    def before_step(self, time_step: TimeStep) -> None:
        if len(self.frames) == self.max_steps:
            self.note = f"the episode continues after these {self.max_steps} steps"
            raise _LongEnough
        returns = {name: float(values[0].mean()) for name, values in time_step.returns.items()}
        self.take(time_step.env.render(0), int(time_step.t[0]), returns)

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        pass

    def take(self, image: np.ndarray, t: int, returns: Mapping[str, float] | None = None) -> None:
        """Keeps a picture `[height, width, 3 or 4]` uint8 of a step, with each group's return before it."""
        picture = Image.fromarray(np.ascontiguousarray(image[..., :3]))
        if picture.width > self.max_width:
            height = max(1, round(picture.height * self.max_width / picture.width))
            picture = picture.resize((self.max_width, height), Image.Resampling.BOX)
        buffer = io.BytesIO()
        picture.save(buffer, format="PNG")
        self.frames.append(buffer.getvalue())
        shown = ", ".join(f"{name} {format_number(value, 3)}" for name, value in (returns or {}).items())
        self.captions.append(f"t = {t}" + (f"   return so far: {shown}" if shown else ""))


@closing_pools()
def _take_played(
    camera: Camera,
    source: PolicySource,
    seed: int,
    explore: bool,
    checkpoint: Which | None,
    edits: Sequence[Edit],
    env: EnvConfig | None,
) -> str:
    origin = source.origin("last" if checkpoint is None else checkpoint)
    policies = source.policies(origin.iteration)
    with source.build_env(1, env=rendering_env(source, env)) as built, edited(policies, edits):
        check_fit(source.spec, built.spec)
        _play(camera, built, policies, seed, explore)
        changed = f", with {', '.join(edit.name for edit in edits)}" if edits else ""
        return f"{built.spec.name}, seed {seed}: {source.path.name}, checkpoint {origin.iteration}{changed}"


def _play(
    camera: Camera,
    env: VectorEnv,
    policies: Mapping[str, Policy],
    seed: int,
    explore: bool,
    actions: Mapping[str, Tensor] | None = None,
) -> dict[str, np.ndarray] | None:
    """Plays an episode, of the policies or of given actions `[time, agent, ...]`; returns, `[agent]` by group, of the
    whole episode, or None if it was cut off."""

    def given(time_step: TimeStep) -> Mapping[str, Tensor]:
        assert actions is not None
        now = int(time_step.t[0])
        return {
            name: action[min(now, len(action) - 1)][None].to(time_step.output[name].action.device)
            for name, action in actions.items()
        }

    env.draw_ends()
    generator = action_generator(env, policies, seed)
    override = None if actions is None else given
    try:
        table = play(
            env, policies, episodes=1, seed=seed, explore=explore, generator=generator, callback=camera,
            override_action=override,
        )  # fmt: skip
    except _LongEnough:
        return None
    returns = {name: values[0] for name, values in table.returns.items()}
    if (end := env.end_picture()) is not None:
        camera.take(end, len(camera.frames), {name: float(values.mean()) for name, values in returns.items()})
    return returns


@closing_pools()
def _take_recorded(
    camera: Camera,
    recording: Recording,
    episode: int,
    policy_source: PolicySourceLike | None,
    env: EnvConfig | None,
) -> str:
    table = recording.episodes
    if episode not in table.index:
        n_episodes = count(len(table), "episode")
        raise RecordingError(f"{recording.path.name} has no episode {episode}; it has {n_episodes}, from 0 on")
    entry = table.loc[episode]
    rows = np.arange(int(entry["start"]), int(entry["start"] + entry["length"]))
    title = f"{recording.spec.name}, episode {episode} of {recording.path.name}"
    if "frames" in recording.file:
        drawn = recording.file["frames/row"][:]
        (indices,) = np.nonzero(np.isin(drawn, rows))
        for k in indices[: camera.max_steps]:
            t = int(recording.file["steps/t"][int(drawn[k])])
            camera.take(np.asarray(recording.file["frames/image"][int(k)]), t)
        if len(indices) > camera.max_steps:
            camera.note = f"the episode continues after these {camera.max_steps} pictures"
        if len(camera.frames):
            return title
    check_start(recording, episode)
    source = source_of(recording, policy_source)
    check_env(recording, source, env)
    actions = recorded_actions(recording, rows)
    policies: Mapping[str, Policy] = {group.name: NoOpPolicy(group) for group in recording.spec.groups}
    edits: tuple[Edit, ...] = ()
    if actions is None:  # only networks can choose them again
        policies = policies_of(recording, source, origin_of(recording, episode))
        edits = edits_of(recording, source)
    if not entry["finished"]:
        camera.max_steps = min(camera.max_steps, len(rows))
    with source.build_env(1, env=rendering_env(source, env)) as built, edited(policies, edits):
        if built.spec != recording.spec:
            raise RecordingError(
                f"{recording.path.name} was recorded in {recording.spec.name}; {built.spec.name} is another "
                "environment or has other spaces; give env="
            )
        returns = _play(camera, built, policies, int(entry["seed"]), False, actions)
    if returns is not None:
        _check_returns(recording, episode, {a: v for g in built.spec.groups for a, v in zip(g.agents, returns[g.name])})
    return title


def _check_returns(recording: Recording, episode: int, returns: Mapping[str, float]) -> None:
    """Raises RecordingError if the episode that was played again has other returns than the recorded one."""
    recorded = recording.episodes.loc[episode]
    for agent in recording.agents:
        if not np.isclose(returns[agent], recorded[agent], rtol=1e-3, atol=1e-3):
            raise RecordingError(
                f"{recording.path.name}: replaying episode {episode} gives {agent} {returns[agent]:.4g}, recorded "
                f"was {recorded[agent]:.4g}: its pictures would not show this episode"
            )
