"""Placeholder: stands for what only the job knows, such as the result of a training run."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NoReturn

MARK = "\ue000"
"""A placeholder as text."""
_OPERATORS = "add and floordiv lshift matmul mod mul or pow rshift sub truediv xor"
_REFLECTED = [f"r{name}" for name in _OPERATORS.split()]
_OTHERS = "abs call eq ge getitem gt invert le lt ne neg pos enter aenter"
_DECISIONS = "aiter bool complex contains float index int iter len next"


class Undecided(BaseException):
    """The code decides by a placeholder. It is no Exception, so that no handler of a notebook catches it."""


class Placeholder:
    """Whatever is done with a placeholder gives a placeholder; a decision by it raises Undecided."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes anything: a class of the notebook may derive from a placeholder."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return PLACEHOLDER

    def __setattr__(self, name: str, value: Any) -> None:
        pass

    __delattr__ = __setitem__ = __delitem__ = __exit__ = lambda self, *args: None  # type: ignore[assignment]

    async def __aexit__(self, *args: Any) -> None:
        pass

    def __await__(self) -> Generator[Any, None, Any]:
        return PLACEHOLDER
        yield

    def __str__(self) -> str:
        return MARK

    __repr__ = __str__

    def __format__(self, form: str) -> str:
        return MARK

    __hash__ = object.__hash__


PLACEHOLDER = Placeholder()


def _placeholder(self: Placeholder, *args: Any, **kwargs: Any) -> Placeholder:
    return PLACEHOLDER


def _undecided(self: Placeholder, *args: Any) -> NoReturn:
    raise Undecided


for _name in (*_OPERATORS.split(), *_REFLECTED, *_OTHERS.split()):
    setattr(Placeholder, f"__{_name}__", _placeholder)
for _name in _DECISIONS.split():
    setattr(Placeholder, f"__{_name}__", _undecided)
