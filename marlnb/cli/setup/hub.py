"""Give a JupyterHub, or any other Jupyter of yours, a kernel of this environment; no administrator is needed.

  marlnb hub install
  marlnb hub install --name marlnb-gpu --display-name "marlnb, GPU" --module cuda/12.4 --env WANDB_MODE=offline
  marlnb hub status
  marlnb hub uninstall --name marlnb-gpu

The kernel loads the modules, sets the variables, literally, and starts this environment's Python; the front end of
the widgets is copied beside it. All of it lands in your own share/jupyter (or JUPYTER_DATA_DIR), nothing is fetched.
Uninstalling removes exactly what installing added.

Exit codes: 0 done; 1 (status) something installed is missing, changed or cannot start; 2 refused, nothing was done.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from marlnb.cli.output import print_json, say
from marlnb.errors import ConfigError

if TYPE_CHECKING:
    from marlnb.batch.hub.installation import Installation

FAILED = 1
INSTALLS_ONLY = ("display_name", "module", "env")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("install", "uninstall", "status"), help="what to do")
    parser.add_argument("--name", help="the kernel's name (default marlnb)")
    parser.add_argument("--display-name", metavar="TEXT", help="what JupyterLab shows (default: name and Python)")
    parser.add_argument(
        "--module", action="append", metavar="NAME", help="an environment module to load before Python; repeatable"
    )
    parser.add_argument(
        "--env", action="append", metavar="KEY=VALUE", help="a variable of the kernel, taken literally; repeatable"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for yourself alone (this is the default)")
    where.add_argument("--prefix", metavar="FOLDER", help="into FOLDER/share/jupyter, as of a hub's own environment")
    parser.add_argument("--force", action="store_true", help="uninstall: remove what was changed since as well")
    parser.add_argument("--json", action="store_true", help="status: print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    from marlnb.batch.hub.installation import Installation

    _check(arguments)
    installation = Installation(arguments.prefix)
    if arguments.action == "status":
        return _status(installation, arguments.name, arguments.json)
    if arguments.action == "uninstall":
        told = installation.uninstall(arguments.name or "marlnb", changed_too=arguments.force)
    else:
        told = _install(installation, arguments)
    for sentence in told:
        print(sentence)
    return 0


def _install(installation: Installation, arguments: argparse.Namespace) -> list[str]:
    from marlnb.batch.hub.kernelspec import HubKernel

    name = arguments.name or "marlnb"
    kernel = HubKernel(name, arguments.display_name or "", tuple(arguments.module or ()), _variables(arguments.env))
    told = installation.install(kernel)
    again = "marlnb hub uninstall" + (f" --name {name}" if name != "marlnb" else "")
    again += "" if arguments.prefix is None else f" --prefix {arguments.prefix}"
    say(f"reload JupyterLab's page, and the kernel is in its launcher; `{again}` undoes this")
    return told


def _variables(texts: list[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--env takes KEY=VALUE; got {text!r}")
        found[name] = value
    return found


def _status(installation: Installation, name: str | None, as_json: bool) -> int:
    names = [name] if name else sorted(installation.kernels)
    problems = {kernel: installation.problems(kernel) for kernel in names if kernel in installation.kernels}
    if as_json:
        kernels = {kernel: installation.kernels[kernel] | {"problems": found} for kernel, found in problems.items()}
        print_json({"folder": str(installation.data), "kernels": kernels, "labextensions": installation.labextensions})
    else:
        _show(installation, problems)
    return FAILED if any(problems.values()) or (name and not problems) else 0


def _show(installation: Installation, problems: dict[str, list[str]]) -> None:
    if not problems:
        print(f"{installation.data}: no such kernel was installed by marlnb")
    for name, found in problems.items():
        entry = installation.kernels[name]
        print(f'{name} ("{entry["display_name"]}", marlnb {entry["version"]}) in {installation.data}')
        print(f"  python: {entry['python']}")
        for key in ("modules", "variables"):
            if entry[key]:
                print(f"  {key}: {', '.join(entry[key])}")
        print("  " + ("\n  ".join(found) or "whole"))
    for name, extension in installation.labextensions.items():
        print(f"labextension {name} {extension['version']}")


def _check(arguments: argparse.Namespace) -> None:
    """Options of one action given to another are mistakes."""
    given = [name for name in INSTALLS_ONLY if getattr(arguments, name)]
    wrong = given if arguments.action != "install" else []
    wrong += ["force"] if arguments.force and arguments.action != "uninstall" else []
    wrong += ["json"] if arguments.json and arguments.action != "status" else []
    if wrong:
        names = ", ".join("--" + name.replace("_", "-") for name in wrong)
        raise ConfigError(f"marlnb hub {arguments.action} does not take {names}")
