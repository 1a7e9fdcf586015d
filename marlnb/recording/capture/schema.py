"""Contents: everything that one recording holds, and when each part of it is read or computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from marlnb.recording.capture.actors import GroupActor
from marlnb.recording.capture.built_in_labels import BuiltInLabels
from marlnb.recording.capture.critics import GroupCritic
from marlnb.recording.capture.sources import Selection, Source, T
from marlnb.recording.file.layout import Field


@dataclass(frozen=True)
class Contents:
    """Everything that one recording holds, in the order of its fields.

    Attributes:
        selections: the groups and agents that are recorded.
        before, after: what is read before and after the environment steps.
        critics: of the groups whose values are recorded.
        actors: of the groups whose actors' sites are computed when an episode ends; other sites are in `before`.
        labels: the environment's own, where it tells them later.
        context: read but not written: what actors and critics need beyond what is recorded; `T` where not every step
            is kept, and its number cannot be counted.
        inputs: by group, the paths of the fields with the observations, and the actor's entering states, of all agents.
    """

    selections: Sequence[Selection]
    before: Sequence[Source]
    critics: Sequence[GroupCritic]
    after: Sequence[Source]
    context: Sequence[Source] = ()
    inputs: Mapping[str, Inputs] = field(default_factory=dict)
    labels: BuiltInLabels | None = None
    actors: Sequence[GroupActor] = ()

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
        """What is kept of each step, in the order in which it is read; recurrent states whole, since activations are
        computed from them."""
        return [
            *(_whole(source.field) for source in self.before),
            *(source.field for source in self.context),
            *(item for critic in self.critics if critic.by_step for item in critic.fields),
            *(source.field for source in self.after),
        ]

    @property
    def recomputed(self) -> list[str]:
        """Sites that are computed when an episode ends, rather than captured as they fire."""
        fields = [item.path for actor in self.actors for item in actor.fields]
        fields += [item.path for critic in self.critics if not critic.by_step for item in critic.fields]
        return [path.removeprefix("activations/") for path in fields if path.startswith("activations/")]


@dataclass(frozen=True)
class Inputs:
    """Where a group's whole inputs are buffered: paths of fields; no `recurrent` where the actor has no state."""

    observation: str
    recurrent: str | None = None


def _whole(item: Field) -> Field:
    return replace(item, dtype="float32") if item.path.startswith("recurrent/") else item
