"""Labels of a PettingZoo environment: what its method `labels()` returns, as specs and rows of shared arrays.

    label_classes = {"goal": ("red", "blue")}              # the classes of labels that are classes, by label

    def labels(self):
        return {"goal": "red", "n_open_doors": 2, "near_door": {"walker_0": True, "walker_1": False}}

`labels` is called only when labels are read, as for a recording: a training run does not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from marlnb.errors import EnvBuildError, EnvError, unknown
from marlnb.specs import EnvSpec, GroupSpec, LabelSpec

BOOL = ("False", "True")
VALUES = (
    "a bool (two classes), a number (a quantity), or an item of label_classes, which the environment has as an "
    "attribute: {label: [names of its classes]}"
)


def label_specs(env: Any, groups: Sequence[GroupSpec]) -> tuple[LabelSpec, ...]:
    """The labels of an environment that has just been reset; none if it has no method `labels`.

    A label that agents of several groups have becomes one label per group, `<group>_<label>`.

    Raises:
        EnvBuildError: `labels()` returned no dict, an unknown agent or a value that is not supported, or two labels
            have one name.
    """
    labelled = find_labels(env)
    if labelled is None:
        return ()
    classes = {name: tuple(map(str, names)) for name, names in getattr(labelled, "label_classes", {}).items()}
    specs = [spec for name, value in _read(labelled).items() for spec in _specs_of(name, value, groups, classes)]
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise EnvBuildError(f"labels() gives two labels one name (of several groups: <group>_<label>): {names}")
    return tuple(specs)


def _specs_of(
    name: str, value: Any, groups: Sequence[GroupSpec], classes: Mapping[str, tuple[str, ...]]
) -> Iterator[LabelSpec]:
    """The specs of one label: one, or one for each group of its agents."""
    if not isinstance(value, Mapping):
        yield LabelSpec(name, None, _classes_of(name, value, classes))
        return
    agents = [agent for group in groups for agent in group.agents]
    if not value:
        raise EnvBuildError(f"labels()[{name!r}] is a dict by agent without any agent; valid: {agents}")
    if wrong := [str(agent) for agent in value if agent not in agents]:
        raise EnvBuildError(f"labels()[{name!r}] is a dict by agent: {unknown('agent', wrong[0], agents)}")
    members = [group for group in groups if set(group.agents) & set(value)]
    for group in members:
        example = next(item for agent, item in value.items() if agent in group.agents)
        title = name if len(members) == 1 else f"{group.name}_{name}"
        yield LabelSpec(title, group.name, _classes_of(name, example, classes))


class LabelRows:
    """One env's rows of the label arrays.

    Args:
        env: the environment, of which `label_specs` made the labels of `spec`.
        spec: of the environment.
        arrays: by label, `[env]` or `[env, agent]`.
        index: of the env.
    """

    def __init__(self, env: Any, spec: EnvSpec, arrays: Mapping[str, np.ndarray], index: int) -> None:
        self._labelled = find_labels(env)
        self._rows = [(label, arrays[label.name][index : index + 1]) for label in spec.labels]
        self._agents = {group.name: group.agents for group in spec.groups}

    def write(self, living: Collection[str]) -> None:
        """Writes the labels of the current time step; zero for agents that are not alive.

        Raises:
            EnvError: a label or a living agent is missing, or a value is not valid.
        """
        values = _read(self._labelled)
        for label, row in self._rows:
            name = label.name
            if name not in values and label.group is not None:
                name = name.removeprefix(f"{label.group}_")
            if name not in values:
                raise EnvError(f"labels() returned {sorted(values)}; after the first reset it also had {name!r}")
            if label.group is None:
                row[0] = _number(name, values[name], label.classes)
                continue
            for i, agent in enumerate(self._agents[label.group]):
                if agent in values[name]:
                    row[0, i] = _number(name, values[name][agent], label.classes)
                elif agent in living:
                    raise EnvError(f"labels()[{name!r}] lacks the living agent {agent!r}; it has {list(values[name])}")
                else:
                    row[0, i] = 0


def find_labels(env: Any) -> Any | None:
    """The environment with the method `labels`: `env`, or one that it wraps; None if none of them has it."""
    inner = getattr(env, "env", None)
    candidates = (env, inner, getattr(env, "unwrapped", None), getattr(inner, "unwrapped", None))
    return next((item for item in candidates if callable(getattr(item, "labels", None))), None)


def _read(labelled: Any) -> Mapping[str, Any]:
    read: Callable[[], Any] = labelled.labels
    values = read()
    if not isinstance(values, Mapping):
        raise EnvBuildError(
            f"labels() must return a dict, of a value or a dict by agent for each label; got {type(values).__name__}"
        )
    return values


def _classes_of(name: str, value: Any, classes: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The classes of a label with this value; empty for a quantity."""
    if name in classes:
        return classes[name]
    if isinstance(value, bool | np.bool_):
        return BOOL
    if isinstance(value, Real) or getattr(value, "shape", None) == ():
        return ()
    raise EnvBuildError(f"labels()[{name!r}] is {value!r}; a label is {VALUES}")


def _number(name: str, value: Any, classes: tuple[str, ...]) -> float:
    """A label's value as a number: the index of a class, or a quantity."""
    if isinstance(value, str) and value in classes:
        return classes.index(value)
    if classes and not isinstance(value, str) and value in range(len(classes)):
        return int(value)
    if classes or not (isinstance(value, Real) or getattr(value, "shape", None) == ()):
        valid = f"one of {list(classes)} or its index" if classes else VALUES
        raise EnvError(f"labels()[{name!r}] is {value!r}; expected {valid}")
    return float(value)
