"""Beside: the episodes that a microscope shows: the recorded one, and what is put beside it. Finding it takes time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from marlnb.config import EnvConfig
from marlnb.errors import MarlnbError, RecordingError
from marlnb.models.hooks.edit import Edit
from marlnb.recording.capture.policy_source import maker_of
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.policy_source import PolicySource
from marlnb.widgets.microscope.answers import Shown
from marlnb.widgets.microscope.episode_view import EpisodeView, view_episode
from marlnb.widgets.microscope.rollouts import Rollouts

PolicySourceLike = PolicySource | str | os.PathLike[str] | None


@dataclass(frozen=True, eq=False)
class Beside:
    """Attributes: subject: whose agents were recorded; None where that is not known, for the reason in `unknown`."""

    recording: Recording
    subject: PolicySource | None
    unknown: str
    env: EnvConfig | None
    _rollouts: Rollouts = field(default_factory=Rollouts)

    def alone(self, view: EpisodeView) -> list[Shown]:
        """The recorded episode by itself."""
        return [Shown(view, title_of(view), self.subject, self.unknown, self.env)]

    def checkpoint(self, view: EpisodeView, iteration: int) -> list[Shown]:
        """And the same seed, played by another checkpoint."""
        played = self._rollouts.play(view, self._known(), checkpoint=iteration, env=self.env)
        title = f"checkpoint {iteration}, the same seed"
        return [*self.alone(view), Shown(played, title, self.subject, env=self.env, compared_with=view)]

    def other(
        self,
        view: EpisodeView,
        recording: Recording | str | os.PathLike[str] | None,
        episode: int | None,
        subject: PolicySourceLike,
        env: EnvConfig | None,
    ) -> list[Shown]:
        """And an episode of another recording, or of this one."""
        given = self.recording if recording is None else recording
        opened = given if isinstance(given, Recording) else Recording.open(given)
        maker, why = maker_or_why(opened, subject) if opened is not self.recording else (self.subject, self.unknown)
        other = view_episode(opened, view.episode if episode is None else episode)
        return [*self.alone(view), Shown(other, title_of(other), maker, why, env or self.env)]

    def edited(self, view: EpisodeView, edits: Sequence[Edit]) -> list[Shown]:
        """The episode's seed played without edits and with them."""
        subject = self._known()
        before = self._rollouts.play(view, subject, env=self.env)
        after = self._rollouts.play(view, subject, edits=edits, env=self.env)
        title = f"episode {view.episode}, seed {before.seed}: as it is"
        told = ", ".join(edit.name for edit in edits)
        return [
            Shown(before, title, subject, env=self.env, compared_with=view),
            Shown(after, f"the same seed, edited: {told}", subject, env=self.env, edited=True),
        ]

    def _known(self) -> PolicySource:
        if self.subject is None:
            raise RecordingError(self.unknown)
        return self.subject


def changes(sides: Sequence[Shown]) -> dict[str, float]:
    """By agent, the second side's return minus the first's."""
    before, after = (side.view.returns for side in sides)
    return {agent: after[agent] - before[agent] for agent in before}


def maker_or_why(recording: Recording, subject: PolicySourceLike) -> tuple[PolicySource | None, str]:
    """Whose agents were recorded, or why that is not known."""
    try:
        return maker_of(recording, subject), ""
    except MarlnbError as error:
        if subject is not None:
            raise
        return None, str(error)


def title_of(view: EpisodeView) -> str:
    return f"{view.recording.path.stem}: episode {view.episode}, seed {view.seed}"
