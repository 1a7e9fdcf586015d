"""What is built from a config: the class of a learner or a network, registered for the class of its options.

Options load without torch, so a config does not import what it describes. The implementation registers itself:

    @LEARNERS.register(IPPOConfig)
    class PPOLearner(Learner):
        def __init__(self, config: IPPOConfig, context: LearnerContext) -> None: ...
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Generic, TypeVar

from marlnb.errors import ConfigError

T = TypeVar("T", bound=Callable[..., object])
B = TypeVar("B", bound=Callable[..., object])


class Builders(Generic[T]):
    """A class or function for each class of configs.

    Those of `marlnb.algorithms.configs.ppo` are in `marlnb.algorithms.ppo`, and so on; that module is imported when
    something is built. A user's config and its implementation are in one file, or in files that are both imported.

    Args:
        name: of the table in messages, such as "LEARNERS".
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._builders: dict[type, T] = {}

    def register(self, config: type) -> Callable[[B], B]:
        """A decorator: what it decorates is built from configs of this class, and of subclasses without their own.

        Raises:
            ConfigError: another one is registered for this class.
        """

        def enter(builder: B) -> B:
            present = self._builders.get(config)
            if present is not None and _path(present) != _path(builder):
                raise ConfigError(f"{self.name}: {config.__name__} is built by {_path(present)} already; subclass it")
            self._builders[config] = builder  # type: ignore[assignment]
            return builder

        return enter

    def of(self, config: object) -> T:
        """What is registered for the config's class, or for the nearest of its base classes.

        A class that is defined again, as by a notebook's cell, has the builder of its last definition.

        Raises:
            ConfigError: for none of them.
        """
        for kind in type(config).__mro__:
            if kind not in self._builders and kind.__module__.startswith("marlnb."):
                importlib.import_module(kind.__module__.replace(".configs.", "."))
            if kind in self._builders:
                return self._builders[kind]
            if earlier := [other for other in self._builders if _is_defined_again(kind, other)]:
                return self._builders[earlier[-1]]
        name = type(config).__name__
        raise ConfigError(f"nothing is registered to be built from {name}; decorate it: @{self.name}.register({name})")


def _is_defined_again(kind: type, earlier: type) -> bool:
    """Whether two classes have one place in the code; a function makes different ones at the same place."""
    return _path(kind) == _path(earlier) and "<locals>" not in kind.__qualname__


def _path(builder: object) -> str:
    return f"{getattr(builder, '__module__', '?')}.{getattr(builder, '__qualname__', builder)}"
