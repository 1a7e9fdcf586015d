"""List environments, algorithms, models, leagues, evolutions, or the sites of a run's policies.

examples:
  marlnb list envs
  marlnb list sites runs/spread
  marlnb list sites env=mpe/simple_speaker_listener model=gru
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from marlnb.cli.config_dir_option import add_config_dir_argument
from marlnb.cli.output import print_json, print_table, say
from marlnb.cli.trust_option import add_trust_argument
from marlnb.errors import ConfigError, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from marlnb.models.policies.policy import Policy

_GROUPS = {"envs": "env", "algorithms": "algorithm", "models": "model", "leagues": "league", "evolutions": "evolution"}
KINDS = (*_GROUPS, "sites")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", metavar="WHAT", help=", ".join(KINDS))
    add(
        "of",
        nargs="*",
        default=[],
        metavar="RUN|KEY=VALUE",
        help="for sites: a run's folder, or overrides of an experiment",
    )
    add_config_dir_argument(parser)
    add_trust_argument(parser)
    add("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> None:
    if arguments.what not in KINDS:
        raise ConfigError(unknown("list", arguments.what, KINDS))
    if arguments.what == "sites":
        return _list_sites(arguments)
    if arguments.of:
        raise ConfigError(f"`marlnb list {arguments.what}` takes no further arguments; got {' '.join(arguments.of)}")
    from marlnb.composition.compose import REGISTRIES
    from marlnb.composition.option_help import summary
    from marlnb.composition.variants import Variants

    group = _GROUPS[arguments.what]
    registry, variants = REGISTRIES[group], Variants.find(arguments.config_dir)
    descriptions = {name: summary(member) for name, member in registry.items()}
    descriptions |= {name: f"variant, {variants.where(group, name)}" for name in variants.names(group)}
    for message in registry.broken().values():
        say(message)
    if arguments.json:
        return print_json({arguments.what: descriptions})
    print_table(["name", "description"], sorted(descriptions.items()))


def _list_sites(arguments: argparse.Namespace) -> None:
    if not arguments.of:
        raise ConfigError(
            "`marlnb list sites` needs a run or an experiment: `marlnb list sites RUN`, or "
            "`marlnb list sites env=mpe/simple_spread model=gru`"
        )
    policies = _policies(arguments.of, arguments.config_dir, arguments.trust)
    rows = [[site.name, site.n_agents, site.n_units, site.kind] for policy in policies for site in policy.sites()]
    header = ["site", "agents", "units", "kind"]
    if arguments.json:
        return print_json({"sites": [dict(zip(header, row)) for row in rows]})
    print_table(header, rows)


def _policies(of: Sequence[str], config_dir: str | None, trust: bool) -> Iterable[Policy]:
    """The policies of a run, built from its experiment without a checkpoint, or of a composed experiment."""
    from marlnb.training.learners import build_learners
    from marlnb.training.runs.files import is_run

    if len(of) == 1 and ("=" not in of[0] or is_run(of[0])):  # such as runs/eight/seed=0
        from marlnb.training.runs.run import Run

        run = Run.open(of[0], trust=trust)
        experiment, spec = run.experiment, run.spec
    else:
        from marlnb.envs.regroup import build_env
        from marlnb.experiment import Experiment

        experiment = Experiment.compose(*of, config_dir=config_dir)
        with build_env(experiment, 1) as env:
            spec = env.spec
    return [learner.policy for learner in build_learners(experiment, spec, "cpu").values()]
