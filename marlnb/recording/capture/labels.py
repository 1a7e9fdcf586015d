"""Labels of recorded steps: a user's own functions, and those that the environment computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from marlnb.errors import RecordingError
from marlnb.recording.capture.sources import Pick, Selection, Source, take_agents
from marlnb.recording.file.layout import Field
from marlnb.training.collect.episodes import TimeStep

LABEL_STATE = "context/label_state"
LABEL_DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.float32, torch.float64),
)


class NamedLabel:
    """Calls a user's label function and checks that every result has the first one's shape and dtype.

    Raises:
        RecordingError: when called: the function raised (the cause of this error), returned a dtype that cannot be
            stored, or returned another shape or dtype than at first.
    """

    def __init__(self, name: str, function: Callable[[TimeStep], Tensor]) -> None:
        self.name, self._function = name, function
        self._first: tuple[torch.Size, torch.dtype] | None = None

    def reset(self) -> None:
        """Takes the shape and dtype of the next result as the first."""
        self._first = None

    def __call__(self, time_step: TimeStep) -> Tensor:
        try:
            value = self._function(time_step)
        except Exception as error:
            raise RecordingError(f"label {self.name!r} raised {type(error).__name__}: {error}") from error
        if isinstance(value, Tensor):
            self._check(value, time_step.env.n_envs)
        elif self._first is not None:
            raise RecordingError(f"label {self.name!r} returned a tensor at first; now it returned {value!r}")
        return value

    def _check(self, value: Tensor, n_envs: int) -> None:
        if value.dtype not in LABEL_DTYPES:
            valid = ", ".join(map(_short, LABEL_DTYPES))
            raise RecordingError(f"label {self.name!r} has dtype {_short(value.dtype)}; valid: {valid}")
        if self._first is None:
            self._first = (value.shape[1:], value.dtype)
        shape, dtype = (n_envs, *self._first[0]), self._first[1]
        if value.shape != shape or value.dtype != dtype:
            raise RecordingError(
                f"label {self.name!r} is now {_short(value.dtype)} of shape {tuple(value.shape)}; "
                f"expected {_short(dtype)} of shape {shape}, as at first"
            )


def named_label(name: str, function: Callable[[TimeStep], Tensor]) -> NamedLabel:
    """`function` as a NamedLabel, or unchanged where it is one already."""
    return function if isinstance(function, NamedLabel) else NamedLabel(name, function)


def reset_labels(labels: Mapping[str, Callable[[TimeStep], Tensor]]) -> None:
    """Resets every NamedLabel, before labels are computed in another environment."""
    for label in labels.values():
        if isinstance(label, NamedLabel):
            label.reset()


class BuiltInLabels:
    """The environment's labels, computed for the rows of whole episodes at once instead of at every step.

    Computing them takes a few dozen small operations. At each step they cost as much as stepping the environment; over
    thousands of rows they cost next to nothing. The environment must implement `label_state` and `labels_of`.

    Args:
        time_step: an example, from an environment whose `label_state` is not None.
    Attributes:
        source: what must be buffered at each step, `[env, value]`.
        fields: `labels/<name>`, in the order of the tensors that `compute` returns.
    """

    def __init__(self, time_step: TimeStep, selections: Sequence[Selection]) -> None:
        self.env = time_step.env
        example = self.env.label_state()
        assert example is not None
        field = Field(LABEL_STATE, ("value",), tuple(example.shape[1:]), _short(example.dtype))
        self.source = Source(field, lambda time_step: time_step.env.label_state())
        recorded = {selection.group.name: selection for selection in selections}
        values = self.env.labels_of(example)
        self._picks: dict[str, Pick] = {}
        self.fields: list[Field] = []
        for label in self.env.spec.labels:
            path, dtype = f"labels/{label.name}", _short(values[label.name].dtype)
            if label.group is None:
                self._picks[label.name] = None
                self.fields.append(Field(path, (), (), dtype))
            elif label.group in recorded:
                selection = recorded[label.group]
                self._picks[label.name] = selection.pick
                self.fields.append(Field(path, ("agent",), (len(selection.indices),), dtype, label.group))

    def compute(self, label_states: Tensor) -> list[Tensor]:
        """Labels `[row]` or `[row, agent]`, from buffered label states `[row, value]`."""
        values: Mapping[str, Tensor] = self.env.labels_of(label_states.to(self.env.device))
        return [take_agents(values[name], pick) for name, pick in self._picks.items()]


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
