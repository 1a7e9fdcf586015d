"""Comparison: finds the episodes that a microscope shows: the recorded one, and another one next to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from marlnb.config import EnvConfig
from marlnb.errors import MarlnbError, RecordingError
from marlnb.models.hooks.edit import Edit
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.recorded_policies import source_of
from marlnb.training.policies.policy_source import PolicySource
from marlnb.widgets.microscope.background import Side
from marlnb.widgets.microscope.env_replay import Rollouts
from marlnb.widgets.microscope.episode_view import EpisodeView, read_episode

OptionalSource = PolicySource | str | os.PathLike[str] | None


@dataclass(frozen=True, eq=False)
class Comparison:
    """Finds episodes to compare with. Its methods take time.

    Attributes:
        recording: of the recorded episode.
        source: the policies that were recorded; None if they are not known.
        unknown: why they are not known.
        env: the environment, if it is not that of `source`.
    """

    recording: Recording
    source: PolicySource | None
    unknown: str
    env: EnvConfig | None
    _rollouts: Rollouts = field(default_factory=Rollouts)

    def alone(self, view: EpisodeView) -> list[Side]:
        """The recorded episode alone."""
        return [Side(view, title_of(view), self.source, self.unknown, self.env)]

    def checkpoint(self, view: EpisodeView, iteration: int) -> list[Side]:
        """The recorded episode, and the same seed played by another checkpoint."""
        played = self._rollouts.play(view, self._known_source(), checkpoint=iteration, env=self.env)
        title = f"checkpoint {iteration}, the same seed"
        return [*self.alone(view), Side(played, title, self.source, env=self.env, compared_with=view)]

    def other(
        self,
        view: EpisodeView,
        recording: RecordingLike | None = None,
        episode: int | None = None,
        policy_source: OptionalSource = None,
        env: EnvConfig | None = None,
    ) -> list[Side]:
        """The recorded episode, and one of another recording or of this one (None)."""
        if recording is None:
            recording = self.recording
        opened = opened_recording(recording)
        known = (self.source, self.unknown)
        source, why = known if opened is self.recording else source_or_reason(opened, policy_source)
        other = read_episode(opened, view.episode if episode is None else episode)
        return [*self.alone(view), Side(other, title_of(other), source, why, env or self.env)]

    def edited(self, view: EpisodeView, edits: Sequence[Edit]) -> list[Side]:
        """The episode's seed, played without edits and with them."""
        source = self._known_source()
        before = self._rollouts.play(view, source, env=self.env)
        after = self._rollouts.play(view, source, edits=edits, env=self.env)
        title = f"episode {view.episode}, seed {before.seed}: without edits"
        names = ", ".join(edit.name for edit in edits)
        return [
            Side(before, title, source, env=self.env, compared_with=view),
            Side(after, f"the same seed, edited: {names}", source, env=self.env, is_edited=True),
        ]

    def networks(self, view: EpisodeView, policy_sources: Sequence[PolicySource]) -> list[Side]:
        """The episode as one or two other runs' networks see it: one next to the recorded networks, two alone."""
        source = self._known_source()
        env = self.env or (source.experiment.env if source.experiment else None)
        sides = [] if len(policy_sources) > 1 else self.alone(view)
        for networks in policy_sources:
            observed = self._rollouts.observe(view, networks, env)
            title = f"{networks.path.name}, the observations of episode {view.episode}"
            sides.append(Side(observed, title, networks, env=env, compared_with=view))
        return sides

    def _known_source(self) -> PolicySource:
        if self.source is None:
            raise RecordingError(self.unknown)
        return self.source


def return_changes(sides: Sequence[Side]) -> dict[str, float]:
    """By agent, the return of the second side minus that of the first."""
    before, after = (side.view.returns for side in sides)
    return {agent: after[agent] - before[agent] for agent in before}


def source_or_reason(
    recording: Recording, policy_source: OptionalSource, *, trust: bool = False
) -> tuple[PolicySource | None, str]:
    """The policies that were recorded, or why they are not known."""
    try:
        return source_of(recording, policy_source, trust=trust), ""
    except MarlnbError as error:
        if policy_source is not None:
            raise
        return None, str(error)


def title_of(view: EpisodeView) -> str:
    return f"{view.recording.path.stem}: episode {view.episode}, seed {view.seed}"
