"""Install a kernel of this environment in a JupyterHub or another Jupyter, without an administrator.

  marlnb hub install
  marlnb hub install --name marlnb-gpu --display-name "marlnb, GPU" --module cuda/12.4 --env WANDB_MODE=offline
  marlnb hub status
  marlnb hub uninstall --name marlnb-gpu

The kernel loads the modules, sets the variables (literally) and starts this environment's Python. The widgets' front
end is installed too. Everything goes to your own share/jupyter (or JUPYTER_DATA_DIR), nothing is downloaded.
Uninstalling removes exactly what was installed.

Exit codes: 0 done; 1 (status) no kernel is installed, or something is missing, changed or cannot start; 2 bad input,
nothing was done.
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from marlnb.cli.exit_codes import FAILED
from marlnb.cli.output import print_json, print_text, say
from marlnb.errors import ConfigError

if TYPE_CHECKING:
    from marlnb.batch.hub.installation import Installation

INSTALL_OPTIONS = ("display_name", "module", "env")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", choices=("install", "uninstall", "status"), help="what to do")
    add("--name", help="the kernel's name (default marlnb; status: every kernel that marlnb installed)")
    add("--display-name", metavar="TEXT", help="what JupyterLab shows (default: name and Python)")
    add("--module", action="append", metavar="NAME", help="environment module to load before Python; repeatable")
    help_env = "environment variable of the kernel, set literally; repeatable"
    add("--env", action="append", metavar="KEY=VALUE", help=help_env)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for yourself alone (default)")
    where.add_argument("--prefix", metavar="FOLDER", help="into FOLDER/share/jupyter, e.g. of a hub's environment")
    add("--force", action="store_true", help="uninstall: remove changed files too")
    add("--json", action="store_true", help="status: print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    from marlnb.batch.hub.installation import Installation

    _check(arguments)
    installation = Installation(arguments.prefix)
    if arguments.action == "status":
        return _status(installation, arguments.name, arguments.json)
    if arguments.action == "uninstall":
        messages = installation.uninstall(arguments.name or "marlnb", remove_changed=arguments.force)
    else:
        messages = _install(installation, arguments)
    print_text("\n".join(messages))
    return 0


def _install(installation: Installation, arguments: argparse.Namespace) -> list[str]:
    from marlnb.batch.hub.kernelspec import HubKernel
    from marlnb.batch.sweep.parameters import split_assignments

    name = arguments.name or "marlnb"
    variables = dict(split_assignments(arguments.env or (), "--env"))
    kernel = HubKernel(name, arguments.display_name or "", tuple(arguments.module or ()), variables)
    messages = installation.install(kernel)
    undo = ["marlnb", "hub", "uninstall"]
    undo += [] if name == "marlnb" else ["--name", name]
    undo += [] if arguments.prefix is None else ["--prefix", arguments.prefix]
    say(f"reload JupyterLab's page to see the kernel in its launcher; to remove it: {shlex.join(undo)}")
    return messages


def _status(installation: Installation, name: str | None, as_json: bool) -> int:
    names = [name] if name else sorted(installation.kernels)
    problems = {kernel: installation.problems(kernel) for kernel in names if kernel in installation.kernels}
    if as_json:
        kernels = {kernel: installation.kernels[kernel] | {"problems": texts} for kernel, texts in problems.items()}
        print_json({"folder": str(installation.data), "kernels": kernels, "labextensions": installation.labextensions})
    else:
        if not problems:
            which = f"kernel {name}" if name else "kernel"
            print_text(f"{installation.data} has no {which} that marlnb installed")
        _show(installation, problems)
    return FAILED if any(problems.values()) or not problems else 0


def _show(installation: Installation, problems: dict[str, list[str]]) -> None:
    for name, texts in problems.items():
        entry = installation.kernels[name]
        print_text(f'{name} ("{entry["display_name"]}", marlnb {entry["version"]}) in {installation.data}')
        print_text(f"  python: {entry['python']}")
        for key in ("modules", "variables"):
            if entry[key]:
                print_text(f"  {key}: {', '.join(entry[key])}")
        print_text("  " + ("\n  ".join(texts) or "complete"))
    for name, extension in installation.labextensions.items():
        print_text(f"labextension {name} {extension['version']}")


def _check(arguments: argparse.Namespace) -> None:
    """Refuses options that belong to another action."""
    given = [name for name in INSTALL_OPTIONS if getattr(arguments, name)]
    invalid = given if arguments.action != "install" else []
    invalid += ["force"] if arguments.force and arguments.action != "uninstall" else []
    invalid += ["json"] if arguments.json and arguments.action != "status" else []
    if invalid:
        names = ", ".join("--" + name.replace("_", "-") for name in invalid)
        raise ConfigError(f"marlnb hub {arguments.action} does not accept {names}; see `marlnb hub --help`")
