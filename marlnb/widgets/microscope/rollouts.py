"""An episode played once more under its seed: with edits, or by another checkpoint. Its recording lies in a folder
that lives as long as the microscope."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from marlnb.config import EnvConfig
from marlnb.models.hooks.edit import Edit
from marlnb.recording.capture.recorder import record
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.policies.transformed import TransformedPolicySource
from marlnb.training.runs.run import Which
from marlnb.widgets.microscope.episode_view import EpisodeView, view_episode


class Rollouts:
    """Plays episodes of a recording again and keeps them while it is held."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._numbers = count()

    def play(
        self,
        view: EpisodeView,
        subject: PolicySource,
        *,
        edits: Sequence[Edit] = (),
        checkpoint: Which | None = None,
        env: EnvConfig | None = None,
    ) -> EpisodeView:
        """The episode under its seed, alone in one copy of the environment.

        Where the recording's actions were sampled, so are these: every call under the same seed draws the same
        noise, so that rollouts with and without edits differ by the edits alone.

        Raises:
            SiteError, ShapeError, ConfigError: an edit of what the policies do not have. CheckpointError: no such.
        """
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="marlnb-microscope-")
        settings = view.recording.settings
        played = record(
            TransformedPolicySource(subject, {}, "played again", folder=Path(self._folder.name)),
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
        return view_episode(played, 0)
