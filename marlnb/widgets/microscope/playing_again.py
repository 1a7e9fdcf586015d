"""An episode's moments, lived through once more in its environment: for pictures, and for where things are in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import torch

from marlnb.config import EnvConfig
from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import RecordingError
from marlnb.training.policies.policy_source import PolicySource
from marlnb.widgets.microscope.episode_view import EpisodeView

CLOSE = 1e-3  # of an observation's numbers: another number of copies adds up in another order


def live_again(view: EpisodeView, subject: PolicySource, env: EnvConfig | None = None) -> Iterator[tuple[int, VectorEnv]]:
    """(place, one copy of the environment in the state before that step), fed the recorded actions.

    Raises:
        RecordingError: the actions of some agent or step were not recorded, the environment is another one, or it does
            not come to the recorded observations.
    """
    recording = view.recording
    _check_actions(view)
    with subject.build_env(1, env=_with_pictures(subject, env)) as built:
        if built.spec != recording.spec:
            raise RecordingError(
                f"{recording.path.name} was recorded in {recording.spec.name}, and this is {built.spec.name} or "
                "differs in its spaces; give env="
            )
        step = built.reset(view.seed)
        for place in range(len(view.t)):
            _check_observation(view, place, step)
            yield place, built
            if place + 1 < len(view.t):
                actions = {
                    group.name: torch.as_tensor(group.action[place : place + 1]).to(built.device)
                    for group in view.groups
                }
                step = built.step(actions)


def _with_pictures(subject: PolicySource, env: EnvConfig | None) -> EnvConfig | None:
    """Built so that it can be drawn, and in this process so that it can be asked, where those are options of it."""
    given = env or (subject.experiment.env if subject.experiment is not None else None)
    options = {item.name for item in fields(given)} if given is not None else set()
    wanted = {name: value for name, value in (("render", True), ("workers", 0)) if name in options}
    return replace(given, **wanted) if given is not None and wanted else env  # type: ignore[arg-type]


def _check_actions(view: EpisodeView) -> None:
    name = view.recording.path.name
    missing = [agent for agent in view.recording.spec.agents if agent not in view.agents]
    if missing:
        raise RecordingError(f"{name} lacks the actions of {', '.join(missing)}: the episode cannot be drawn again")
    if not np.array_equal(view.t, np.arange(len(view.t))):
        raise RecordingError(f"{name} leaves steps out: the episode cannot be drawn again; record with frames=True")


def _check_observation(view: EpisodeView, place: int, step: Step) -> None:
    for group in view.groups:
        now = step.groups[group.name].observation[0].reshape(len(group.agents), -1).cpu().numpy()
        was, acting = group.observation[place], group.acting[place]
        if not np.allclose(now[acting], was[acting], rtol=CLOSE, atol=CLOSE, equal_nan=True):
            raise RecordingError(
                f"played again, episode {view.episode} of {view.recording.path.name} comes to other observations of "
                f"{group.name} at t={view.t[place]}: its pictures would be of something else"
            )
