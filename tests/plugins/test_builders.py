"""What is built from a config: found by its class, imported when first needed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

from marlnb.errors import ConfigError
from marlnb.plugins.builders import Builders


@dataclass(frozen=True)
class Options:
    n: int = 1


@dataclass(frozen=True)
class MoreOptions(Options):
    m: int = 2


@dataclass(frozen=True)
class OtherDefaults(MoreOptions):
    n: int = 3


def first(config: Options) -> str:
    return f"first of {config.n}"


def second(config: MoreOptions) -> str:
    return f"second of {config.n}, {config.m}"


def test_the_nearest_class_decides() -> None:
    things = Builders("THINGS")
    things.register(Options)(first)
    assert things.of(OtherDefaults())(OtherDefaults()) == "first of 3"
    things.register(MoreOptions)(second)
    assert things.of(Options())(Options()) == "first of 1"
    assert things.of(OtherDefaults())(OtherDefaults()) == "second of 3, 2"


def test_registering_twice_replaces_the_same_builder_and_refuses_another() -> None:
    things = Builders("THINGS")
    things.register(Options)(first)
    things.register(Options)(first)  # a notebook's cell that is run again
    message = "THINGS: Options is built by .*test_builders.first already; subclass it"
    with pytest.raises(ConfigError, match=message):
        things.register(Options)(second)
    assert things.of(Options()) is first


def defined(**place: str) -> type[Options]:
    """As a cell defines it each time it runs."""
    return dataclass(frozen=True)(type("Mine", (Options,), {"__module__": "__main__", **place}))


def test_a_class_that_is_defined_again_keeps_its_builder() -> None:
    things = Builders("THINGS")
    things.register(Options)(first)
    things.register(defined())(second)
    assert things.of(defined()()) is second
    renamed = things.register(defined())(lambda config: "renamed")
    assert things.of(defined()()) is renamed
    for other in ({"__module__": "elsewhere"}, {"__qualname__": "Mine.Inner"}):
        assert things.of(defined(**other)()) is first


def test_classes_that_a_function_makes_are_different_ones() -> None:
    things, place = Builders("THINGS"), {"__qualname__": "make.<locals>.Mine"}
    things.register(Options)(first)
    one, other = defined(**place), defined(**place)
    things.register(one)(second)
    assert things.of(one()) is second and things.of(other()) is first


def test_an_unregistered_class_is_an_error_that_says_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"to be built from Options; decorate it: @THINGS.register\(Options\)"):
        Builders("THINGS").of(Options())


def test_a_config_imports_what_it_describes_when_it_is_built() -> None:
    code = """
import sys
from marlnb.config import LEARNERS, NETWORKS
from marlnb.algorithms.configs.ppo import MAPPOConfig
from marlnb.models.networks.configs.recurrent import LSTMConfig
config, network = MAPPOConfig(), LSTMConfig()
assert "torch" not in sys.modules
assert LEARNERS.of(config).__name__ == "PPOLearner" and NETWORKS.of(network).__name__ == "LSTM"
assert "marlnb.algorithms.sac" not in sys.modules and "marlnb.models.networks.gnn" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)
