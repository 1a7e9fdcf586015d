"""Schedules: options of algorithms that change during a training run, as `"50000 algorithm.lr=1e-4"`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from marlnb.config import AlgorithmConfig
from marlnb.errors import ConfigError, unknown
from marlnb.values import hints

_CHANGE = re.compile(r"(?P<frames>[0-9][0-9_]*) +(?P<path>algorithm|algorithms\.\w+)\.(?P<option>\w+)=(?P<value>\S+)")


@dataclass(frozen=True)
class Change:
    """An option of an algorithm that has another value from some number of frames on.

    Attributes:
        frames: of the training; the change applies with the first iteration that begins there or later.
        part: of the experiment: `algorithm`, or `algorithms.<group>`.
        option: its name.
        value: its new value.
    """

    frames: int
    part: str
    option: str
    value: float

    def __str__(self) -> str:
        return f"{self.frames} {self.part}.{self.option}={self.value!r}"

    @property
    def group(self) -> str:
        """Of `algorithms`; empty: the option of `algorithm`."""
        return self.part.partition(".")[2]

    def of(self, algorithm: AlgorithmConfig) -> AlgorithmConfig:
        """The algorithm after the change. Raises ConfigError: it has no such number, or the value does not fit."""
        names = {item.name for item in fields(algorithm)}
        if self.option not in names:
            raise ConfigError(f"schedule: {str(self)!r}: {unknown(f'option of {algorithm.name}', self.option, names)}")
        if self.option in algorithm.fixed_options:
            numbers = {name for name in names if hints(type(algorithm))[name] in (int, float, float | None)}
            raise ConfigError(
                f"schedule: {str(self)!r}: {self.option} of {algorithm.name} says what a training run begins with and "
                f"cannot change; valid: {', '.join(sorted(numbers - set(algorithm.fixed_options))) or 'none'}",
                at="schedule",
            )
        try:
            return replace(algorithm, **{self.option: self.value})
        except ConfigError as error:
            raise ConfigError(f"schedule: {str(self)!r}: {error}", at="schedule") from error


def read_schedule(texts: Iterable[str]) -> tuple[Change, ...]:
    """The changes of a schedule, earliest first.

    Raises:
        ConfigError: a text is not a change.
    """
    changes = []
    for text in texts:
        match = _CHANGE.fullmatch(text.strip())
        try:
            if match is None:
                raise ValueError
            frames, value = int(match["frames"]), float(match["value"])
        except ValueError:
            raise ConfigError(
                f"schedule: {text!r} is not a change; expected frames and a number of an algorithm, such as "
                "'50000 algorithm.lr=1e-4' or '50000 algorithms.agent.lr=1e-4'",
                at="schedule",
            ) from None
        changes.append(Change(frames, match["path"], match["option"], value))
    return tuple(sorted(changes, key=lambda change: change.frames))
