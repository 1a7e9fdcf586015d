"""RecordingSchema: everything that one recording holds, and when each part of it is read or computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from marlnb.recording.capture.actors import GroupActor
from marlnb.recording.capture.critics import GroupCritic
from marlnb.recording.capture.labels import BuiltInLabels
from marlnb.recording.capture.sources import Selection, Source, T
from marlnb.recording.file.layout import Field
from marlnb.specs import LabelSpec


@dataclass(frozen=True)
class RecordingSchema:
    """The parts of a recording, in the order of its fields.

    Attributes:
        selections: the recorded groups and agents.
        before: sources that are read before the environment steps.
        critics: of the groups whose values are recorded.
        after: sources that are read after the environment has stepped.
        context: sources that are buffered but not stored: further inputs of actors and critics; `T` where only every
            k-th step is recorded, since its number cannot be counted then.
        inputs: by group, where the buffered observations and entering states of all its agents are.
        labels: the environment's labels, where they are computed per episode.
        actors: of the groups whose actor sites are computed per episode; other actor sites are in `before`.
        label_specs: of the environment's labels.
    """

    selections: Sequence[Selection]
    before: Sequence[Source]
    critics: Sequence[GroupCritic]
    after: Sequence[Source]
    context: Sequence[Source] = ()
    inputs: Mapping[str, GroupInputs] = field(default_factory=dict)
    labels: BuiltInLabels | None = None
    actors: Sequence[GroupActor] = ()
    label_specs: Sequence[LabelSpec] = ()

    @property
    def fields(self) -> list[Field]:
        """The datasets of the file."""
        return [
            *(source.field for source in self.before),
            *(item for critic in self.critics for item in critic.fields),
            *(item for actor in self.actors for item in actor.fields),
            *(self.labels.fields if self.labels is not None else ()),
            *(source.field for source in self.after),
            T.field,
            Field("steps/env_id", (), (), "int64"),
            Field("steps/episode", (), (), "int64"),
        ]

    @property
    def buffered(self) -> list[Field]:
        """What is buffered of each step, in reading order. Recurrent states stay float32: activations need them."""
        return [
            *(_in_full_precision(source.field) for source in self.before),
            *(source.field for source in self.context),
            *(item for critic in self.critics if critic.by_step for item in critic.fields),
            *(source.field for source in self.after),
        ]

    @property
    def recomputed(self) -> list[str]:
        """Sites that are computed per episode instead of captured as they fire."""
        fields = [item.path for actor in self.actors for item in actor.fields]
        fields += [item.path for critic in self.critics if not critic.by_step for item in critic.fields]
        return [path.removeprefix("activations/") for path in fields if path.startswith("activations/")]


@dataclass(frozen=True)
class GroupInputs:
    """Paths of the buffered fields with a group's inputs, for all its agents.

    Attributes:
        observation: path of the observations.
        recurrent: path of the states that enter each step; None where the actor has no state.
    """

    observation: str
    recurrent: str | None = None


def _in_full_precision(item: Field) -> Field:
    return replace(item, dtype="float32") if item.path.startswith("recurrent/") else item
