"""What composition reads of an experiment: its parts and its size. `marlnb.experiment.Experiment` has all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from marlnb.composition.tuned import TunedBy
from marlnb.config import AlgorithmConfig, EnvConfig, ModelConfig


class Composed(Protocol):
    """A frozen dataclass with the parts of an experiment."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def env(self) -> EnvConfig: ...

    @property
    def algorithm(self) -> AlgorithmConfig: ...

    @property
    def model(self) -> ModelConfig: ...

    @property
    def algorithms(self) -> Mapping[str, AlgorithmConfig]: ...

    @property
    def tuned(self) -> tuple[TunedBy, ...] | None: ...

    @property
    def evolution(self) -> object | None: ...

    @property
    def seed(self) -> int: ...

    @property
    def frames(self) -> int: ...

    @property
    def iterations(self) -> int: ...

    @property
    def n_envs(self) -> int: ...

    @property
    def rollout_steps(self) -> int: ...

    def to_json(self) -> dict[str, Any]: ...
