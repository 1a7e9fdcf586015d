"""The environment in which a command plays a run's policies, if it is not the run's own."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from marlnb.errors import ConfigError

if TYPE_CHECKING:
    from marlnb.config import EnvConfig


def add_environment_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", metavar="env.KEY=VALUE", help="options of the environment of --env")
    parser.add_argument("--env", metavar="NAME", help="another environment with the same groups and spaces")
    parser.add_argument("--config-dir", metavar="FOLDER", help="YAML variants for --env (else MARLNB_CONFIG_DIR)")


def chosen_environment(arguments: argparse.Namespace) -> EnvConfig | None:
    """What `--env` and its overrides ask for, None where they ask for nothing.

    Raises:
        ConfigError: overrides without `--env`, of something else than the environment, or that cannot be composed.
    """
    if arguments.env is None:
        if arguments.overrides:
            raise ConfigError(f"{arguments.overrides[0]!r} is an option of --env, which is not given")
        return None
    for word in arguments.overrides:
        if not word.startswith("env."):
            raise ConfigError(f"{word!r} is not an option of the environment: those are env.KEY=VALUE")
    from marlnb.compose import compose_env

    return compose_env(arguments.env, *arguments.overrides, config_dir=arguments.config_dir)
