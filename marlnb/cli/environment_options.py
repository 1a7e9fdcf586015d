"""The options of commands that can play a run's policies in another environment."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from marlnb.cli.config_dir_option import add_config_dir_argument
from marlnb.errors import ConfigError

if TYPE_CHECKING:
    from marlnb.config import EnvConfig


def add_environment_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("overrides", nargs="*", default=[], metavar="env.KEY=VALUE", help="options of the environment --env")
    add("--env", metavar="NAME", help="another environment with the same groups and spaces")
    add_config_dir_argument(parser, "YAML variants for --env")


def chosen_environment(arguments: argparse.Namespace) -> EnvConfig | None:
    """The environment of `--env` and its overrides; None without `--env`.

    Raises:
        ConfigError: overrides without `--env`, overrides of something else, or overrides that cannot be composed.
    """
    if arguments.env is None:
        if arguments.overrides:
            raise ConfigError(f"{arguments.overrides[0]!r} is an option of another environment; give --env NAME too")
        return None
    for word in arguments.overrides:
        if not word.startswith("env."):
            raise ConfigError(f"expected an option of the environment, env.KEY=VALUE; got {word!r}")
    from marlnb.composition.compose import compose_env

    return compose_env(arguments.env, *arguments.overrides, config_dir=arguments.config_dir)
