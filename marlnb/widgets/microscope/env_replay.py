"""Replay an episode in its environment, for pictures and object positions; play its seed again with other policies."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from marlnb.config import EnvConfig
from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import CheckpointError, RecordingError
from marlnb.models.hooks import episode_context
from marlnb.models.hooks.capture import all_sites
from marlnb.models.hooks.edit import Edit
from marlnb.models.policies.policy import ActContext, ActorOutput, Policy
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.animate import rendering_env
from marlnb.recording.tools.recorded_env import check_env
from marlnb.recording.tools.recorded_policies import check_origin, origin_at
from marlnb.specs import EnvSpec
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.policies.transformed import TransformedPolicySource
from marlnb.training.runs.run_folder import Which
from marlnb.widgets.microscope.episode_view import EpisodeView, GroupView, read_episode

TOLERANCE = 1e-3  # of observations: a batch of another size adds floats in another order


def replay_steps(
    view: EpisodeView, source: PolicySource, env: EnvConfig | None = None
) -> Iterator[tuple[int, VectorEnv]]:
    """Replays the recorded actions of an episode.

    Returns:
        (index, env): the index of each step, and one env in the state before that step.
    Raises:
        RecordingError: the actions of some agent or step were not recorded, the environment is another one, or it does
            not reproduce the recorded observations.
    """
    _check_actions(view)
    check_env(view.recording, source, env)
    with source.build_env(1, env=rendering_env(source, env)) as built:
        _check_spec(view.recording, built.spec)
        step = built.reset(view.seed)
        for index in range(len(view.t)):
            _check_observation(view, index, step)
            yield index, built
            if index + 1 < len(view.t):
                actions = {group.name: torch.as_tensor(group.action[[index]]).to(built.device) for group in view.groups}
                step = built.step(actions)


def _check_spec(recording: Recording, spec: EnvSpec) -> None:
    if spec != recording.spec:
        raise RecordingError(
            f"{recording.path.name} was recorded in {recording.spec.name}; this is {spec.name}, or its options differ; "
            "give env="
        )


def _check_actions(view: EpisodeView) -> None:
    name = view.recording.path.name
    missing = [agent for agent in view.recording.spec.agents if agent not in view.agents]
    if missing:
        raise RecordingError(f"{name} has no actions of {', '.join(missing)}: the episode cannot be replayed")
    if not np.array_equal(view.t, np.arange(len(view.t))):
        raise RecordingError(f"{name} does not have every step: the episode cannot be replayed; record with frames=1")


def _check_observation(view: EpisodeView, index: int, step: Step) -> None:
    for group in view.groups:
        replayed = step.groups[group.name].observation[0].reshape(len(group.agents), -1).cpu().numpy()
        recorded, acting = group.observation[index], group.acting[index]
        if not np.allclose(replayed[acting], recorded[acting], rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
            raise RecordingError(
                f"the replay of episode {view.episode} of {view.recording.path.name} has other observations of "
                f"{group.name} at t={view.t[index]}, so its pictures would not show this episode"
            )


class Rollouts:
    """Plays the seed of a recorded episode again, with edits or by another checkpoint.

    The new recordings are in a temporary folder, which exists as long as this object.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._numbers = count()

    def play(
        self,
        view: EpisodeView,
        source: PolicySource,
        *,
        edits: Sequence[Edit] = (),
        checkpoint: Which | None = None,
        env: EnvConfig | None = None,
    ) -> EpisodeView:
        """Plays the episode's seed in one env.

        If the recorded actions were sampled, these are too. Each call draws the same noise for the same seed, so that
        rollouts with and without edits differ by the edits alone.

        Raises:
            SiteError, ShapeError, ConfigError: an edit does not fit the policies.
            CheckpointError: there is no such checkpoint.
            RecordingError: the source has other weights than those that were recorded, or the environment is another.
        """
        if checkpoint is None:
            view.check_source(source)
        else:
            with suppress(CheckpointError):  # the recorded one was deleted
                check_origin(view.recording, source, origin_at(view.recording, int(view.rows[0])))
        check_env(view.recording, source, env)
        settings = view.recording.settings
        recording = record(
            TransformedPolicySource(source, {}, "played again", folder=self._temporary_folder()),
            episodes=1,
            seed=view.seed,
            sites=view.sites,
            explore=bool(settings["explore"]),
            values=bool(settings["values"]),
            edits=edits,
            checkpoint=view.checkpoint if checkpoint is None else checkpoint,
            n_envs=1,
            env=env,
            name=f"played-{next(self._numbers)}",
            progress=False,
        )
        _check_spec(view.recording, recording.spec)
        return read_episode(recording, 0)

    def observe(self, view: EpisodeView, networks: PolicySource, env: EnvConfig | None) -> EpisodeView:
        """The episode as other networks see it: they receive its observations, while its agents act as recorded.

        Args:
            networks: whose last policies observe; units, values and the probabilities of actions are theirs.
            env: that was recorded, if it is not that of `networks`.
        Raises:
            RecordingError: as `replay_steps`, or the networks have none of the episode's sites.
        """
        _check_actions(view)
        theirs = [site.name for site in all_sites(networks.policies())]
        sites = [site for site in view.sites if site in theirs]
        if not sites:
            raise RecordingError(
                f"{networks.path.name} has none of the recorded sites {', '.join(view.sites)}; "
                f"it has {', '.join(theirs)}"
            )
        acting = {group.name: partial(_act_as_recorded, group) for group in view.groups}
        recording = record(
            TransformedPolicySource(networks, acting, "actions as recorded", folder=self._temporary_folder()),
            episodes=1,
            seed=view.seed,
            sites=sites,
            values=bool(view.recording.settings["values"]),
            n_envs=1,
            env=env,
            name=f"observed-{next(self._numbers)}",
            progress=False,
        )
        observed = read_episode(recording, 0)
        for expected, actual in zip(view.groups, observed.groups):
            if not _are_close(expected.observation, actual.observation):
                raise RecordingError(
                    f"the environment does not repeat episode {view.episode} of {view.recording.path.name}, so other "
                    "networks cannot receive the same observations"
                )
        return observed

    def _temporary_folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="marlnb-microscope-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder


def _are_close(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def _act_as_recorded(group: GroupView, policy: Policy) -> Policy:
    """The policy, whose agents take the recorded actions of an episode, whatever it would choose."""
    actions = torch.as_tensor(group.action)
    choose, is_density = policy.choose, group.spec.action.kind != "continuous" and not policy.greedy

    def take(observation: Tensor, context: ActContext) -> ActorOutput:
        output = choose(observation, context)
        t = episode_context.now("an episode of other networks").t.clamp(max=len(actions) - 1)
        action = actions[t]
        if is_density and policy.distribution is not None:
            output = output._replace(log_prob=policy.distribution.log_prob(output.logits, action))
        return output._replace(action=action)

    policy.choose = take  # type: ignore[method-assign]
    return policy
