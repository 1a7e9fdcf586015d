"""HubKernel: the files of a kernelspec for this environment, with its modules and variables."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ipykernel.kernelspec import RESOURCES

from marlnb.errors import ConfigError

KERNEL, LAUNCHER = "kernel.json", "launch.sh"
# bash sets these itself: some cannot be changed, others change each time they are read
BASH_VARIABLES = {"_", "UID", "EUID", "PPID", "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO", "RANDOM", "SRANDOM", "SECONDS"}
BASH_VARIABLES |= {"LINENO", "GROUPS", "DIRSTACK", "FUNCNAME", "EPOCHSECONDS", "EPOCHREALTIME", "SHLVL", "BASHPID"}

_HEAD = """\
#!/usr/bin/env bash
# Starts the Jupyter kernel of a marlnb environment. Made by `marlnb hub install`; `marlnb hub uninstall` removes it.
# Its output is in the log of the Jupyter server.

python={python}
if [ ! -x "$python" ]; then
  echo "marlnb: $python does not exist, so this kernel cannot start; run 'marlnb hub install' in another" \\
    "environment, or 'marlnb hub uninstall'" >&2
  exit 127
fi
"""
_MODULES = """
if ! type module >/dev/null 2>&1; then
  for start in "${LMOD_PKG:-/usr/share/lmod/lmod}/init/bash" "${MODULESHOME:-/usr/share/modules}/init/bash" \\
    /etc/profile.d/lmod.sh /etc/profile.d/modules.sh /etc/profile.d/z00_lmod.sh; do
    if [ -r "$start" ]; then . "$start"; break; fi
  done
fi
if ! type module >/dev/null 2>&1; then
  echo "marlnb: the command 'module' does not exist on $(uname -n), so this kernel's modules cannot be loaded" >&2
  exit 1
fi
"""
_MODULE = "module load {name} || {{ echo marlnb: the module {name} cannot be loaded >&2; exit 1; }}\n"
_TAIL = """
exec "$python" -m ipykernel_launcher "$@"
"""


@dataclass(frozen=True)
class HubKernel:
    """A kernel to install.

    Attributes:
        name: the kernelspec's folder: letters, digits, `.`, `_` and `-`.
        display_name: what JupyterLab shows; empty: `<name> (Python 3.11)`.
        modules: environment modules to load, in this order, before Python starts.
        variables: environment variables, set literally: nothing in a value is expanded.
        python: the environment's Python.

    Raises:
        ConfigError: an invalid name or value.
    """

    name: str = "marlnb"
    display_name: str = ""
    modules: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    python: Path = Path(sys.executable)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", self.name) or set(self.name) == {"."}:
            raise ConfigError(f"a kernel's name may contain letters, digits, '.', '_' and '-'; got {self.name!r}")
        if not self.display_name.isprintable():
            raise ConfigError(f"a kernel's display name must be one line of text; got {self.display_name!r}")
        for module in self.modules:
            if not module or module.startswith("-") or not module.isprintable() or " " in module:
                raise ConfigError(f"expected the name of a module as for `module load`, e.g. cuda/12.4; got {module!r}")
        for name, value in self.variables.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name in BASH_VARIABLES:
                reason = "bash sets it itself" if name in BASH_VARIABLES else "letters, digits and '_' are valid"
                raise ConfigError(f"{name!r} is not a valid name of a variable: {reason}")
            if "\0" in value:
                raise ConfigError(f"the variable {name} must not contain a zero byte; got {value!r}")

    @property
    def shown_name(self) -> str:
        return self.display_name or f"{self.name} (Python {sys.version_info.major}.{sys.version_info.minor})"

    def files(self) -> dict[str, bytes]:
        """The files' contents by name."""
        spec = {
            "argv": ["bash", f"{{resource_dir}}/{LAUNCHER}", "-f", "{connection_file}"],
            "display_name": self.shown_name,
            "language": "python",
            "metadata": {"debugger": True, "marlnb": True},  # the extension's panels look for a kernel with marlnb
        }
        files = {KERNEL: (json.dumps(spec, indent=1) + "\n").encode(), LAUNCHER: self.launcher()}
        logos = sorted(Path(RESOURCES).glob("logo-*"))
        return files | {logo.name: logo.read_bytes() for logo in logos}

    def launcher(self) -> bytes:
        """The script that loads the modules, sets the variables and starts the environment's Python."""
        text = _HEAD.format(python=shlex.quote(str(self.python)))
        if self.modules:
            text += _MODULES + "".join(_MODULE.format(name=shlex.quote(name)) for name in self.modules)
        text += f'\nexport PATH={shlex.quote(str(self.python.parent))}:"$PATH"\n'
        text += "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.variables.items())
        return (text + _TAIL).encode(errors="surrogateescape")
