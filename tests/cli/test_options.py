"""A config dataclass as arguments of a command."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from marlnb.cli.options import add_config_options, config_from
from marlnb.config import accepts_options, option, resolve_config
from marlnb.errors import ConfigError
from marlnb.values import validate


@dataclass(frozen=True)
class ToyConfig:
    count: int = option(3, help="how many, 100% of them", unit="rows", ge=1)
    scale: float | None = option(None, help="a factor")
    fast: bool = option(False, help="skip checks")
    checked: bool = option(True, help="check")
    names: str | tuple[str, ...] = option("*", help="globs")
    which: int | str | tuple[int | str, ...] = option("last", help="numbers or words")
    kind: Literal["a", "b"] = option("a", help="one of two")
    frames: int = option(0, help="every k-th", ge=0)
    functions: Mapping[str, Callable[[int], int]] = option({}, help="needs Python")

    def __post_init__(self) -> None:
        validate(self)


def parsed(*words: str) -> ToyConfig:
    parser = argparse.ArgumentParser()
    add_config_options(parser, ToyConfig, bare={"frames": 1})
    return config_from(parser.parse_args(words), ToyConfig)


def test_words_become_the_values_of_a_config() -> None:
    assert parsed() == ToyConfig()
    assert parsed("--count", "5", "--scale", "0.5", "--fast", "--no-checked") == ToyConfig(5, 0.5, True, False)
    assert parsed("--names", "a/*").names == "a/*"
    assert parsed("--names", "a", "b").names == ("a", "b")
    assert parsed("--names").names == ()
    assert parsed("--which", "7").which == 7
    assert parsed("--which", "7", "best").which == (7, "best")
    assert (parsed("--frames").frames, parsed("--frames", "4").frames) == (1, 4)


def test_bad_values_are_errors() -> None:
    with pytest.raises(ConfigError, match=r"ToyConfig\.count must be at least 1 row; got 0"):
        parsed("--count", "0")
    with pytest.raises(ConfigError, match="'c'"):
        parsed("--kind", "c")
    for words in (["--count", "x"], ["--functions", "x"]):
        with pytest.raises(SystemExit):
            parsed(*words)


def test_help_states_meaning_range_and_default() -> None:
    parser = argparse.ArgumentParser()
    add_config_options(parser, ToyConfig)
    text = " ".join(parser.format_help().split())
    assert "how many, 100% of them [rows; a whole number; at least 1] (default 3)" in text
    assert "--fast skip checks --no-checked switch off: check --names" in text  # a flag takes no value
    assert "--functions" not in text


@dataclass(frozen=True)
class GroupConfig:
    group: str = option(help="whose agents")
    count: int = option(3, help="how many")
    functions: Mapping[str, Callable[[int], int]] = option({}, help="needs Python")


def test_an_option_without_a_default_must_be_given() -> None:
    for given in ({}, {"count": 4}):
        with pytest.raises(ConfigError, match=r"^group has no default and must be given; whose agents$"):
            resolve_config(GroupConfig, None, given)
    given = GroupConfig("a")
    assert resolve_config(GroupConfig, None, {"group": "a"}) == resolve_config(GroupConfig, given, {}) == given
    with pytest.raises(ConfigError, match="did you mean 'group'"):  # more likely than a missing one
        resolve_config(GroupConfig, None, {"gruop": "a"})


def test_verbs_take_a_config_and_overrides() -> None:
    @accepts_options(ToyConfig)
    def verb(path: str, config: ToyConfig | None = None, **overrides: Any) -> ToyConfig:
        """Does something."""
        return resolve_config(ToyConfig, config, overrides)

    assert verb("x", ToyConfig(count=4), scale=2) == ToyConfig(count=4, scale=2.0)
    with pytest.raises(ConfigError, match="did you mean 'count'"):
        verb("x", cuont=4)
    with pytest.raises(ConfigError, match="config must be a ToyConfig or None; got 3"):
        verb("x", 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"functions\.f must be a function; got 3"):
        verb("x", functions={"f": 3})
    import inspect

    assert list(inspect.signature(verb).parameters)[:3] == ["path", "config", "count"]
    assert "count: how many" in (verb.__doc__ or "")
