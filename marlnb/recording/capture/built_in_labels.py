"""The environment's own labels of recorded rows, told for whole episodes at once instead of at every step.

Telling them is a few dozen small operations, which at each step cost as much as stepping the environment; over an
episode's rows of many copies they cost next to nothing. Possible where the environment has `label_moment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from marlnb.recording.capture.sources import Pick, Selection, Source
from marlnb.recording.file.layout import Field
from marlnb.training.collect.episodes import TimeStep

MOMENT = "context/label_moment"


class BuiltInLabels:
    """Reads labels off the rows of `MOMENT`.

    Args:
        moment: an example, of an environment whose `label_moment` is not None.
    Attributes:
        fields: `labels/<name>`; `tell` returns tensors in this order.
        source: what must be kept of each moment.
    """

    def __init__(self, time_step: TimeStep, selections: Sequence[Selection]) -> None:
        self.env = time_step.env
        example = self.env.label_moment()
        assert example is not None
        self.source = Source(
            Field(MOMENT, ("value",), tuple(example.shape[1:]), str(example.dtype).removeprefix("torch.")),
            lambda time_step: time_step.env.label_moment(),
        )
        recorded = {selection.group.name: selection for selection in selections}
        told = self.env.labels_of(example)
        self.picks: Mapping[str, Pick] = {
            label.name: recorded[label.group].pick if label.group else None
            for label in self.env.spec.labels
            if label.group is None or label.group in recorded
        }
        self.fields = [
            _field(label.name, told[label.name], recorded.get(label.group or ""))
            for label in self.env.spec.labels
            if label.name in self.picks
        ]

    def tell(self, moments: Tensor) -> list[Tensor]:
        """Labels `[row]` or `[row, agent]` of moments `[row, value]`."""
        told = self.env.labels_of(moments.to(self.env.device))
        return [told[name] if pick is None else told[name][:, pick] for name, pick in self.picks.items()]


def _field(name: str, example: Tensor, selection: Selection | None) -> Field:
    kind = str(example.dtype).removeprefix("torch.")
    if selection is None:
        return Field(f"labels/{name}", (), (), kind)
    return Field(f"labels/{name}", ("agent",), (len(selection.indices),), kind, selection.group.name)
