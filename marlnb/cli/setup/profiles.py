"""List profiles, which define what a batch's jobs need and where they run; or show one, to copy and change.

  marlnb profiles
  marlnb profiles jean-zay
  marlnb profiles slurm-gpu > ~/.config/marlnb/profiles/mine.yaml

Your profiles are YAML files in ~/.config/marlnb/profiles and $MARLNB_PROFILES; they hide marlnb's of the same name.
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marlnb.cli.output import print_json, print_table, print_text, say
from marlnb.errors import MarlnbError

if TYPE_CHECKING:
    from marlnb.batch.profile import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this profile as YAML, each key with its help")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> None:
    from marlnb.batch.profile import find_profile, profiles

    if arguments.name is None:
        return _list(profiles(), arguments.json)
    profile = find_profile(arguments.name)
    if arguments.json:
        return print_json({"name": arguments.name, "profile": profile.to_json()})
    path = profiles().get(arguments.name, Path(arguments.name))
    print_text(as_yaml(profile, _comment(path)), end="")


def as_yaml(profile: Profile, comment: str = "") -> str:
    """A YAML file of this profile: every key with its help, default values commented out."""
    data, defaults = profile.to_json(), type(profile)().to_json()
    blocks = [comment] if comment else []
    for field in fields(profile):
        unit = f" [{field.metadata['unit']}]" if field.metadata["unit"] else ""
        mark = "# " if data[field.name] == defaults[field.name] and field.name != "executor" else ""
        blocks.append(f"# {field.metadata['help']}{unit}\n{mark}{field.name}: {_value(data[field.name])}\n")
    return "\n".join(blocks)


def _list(paths: dict[str, Path], as_json: bool) -> None:
    from marlnb.batch.profile import BUILT_IN_FOLDER, find_profile

    rows: list[dict[str, Any]] = []
    for name, path in sorted(paths.items()):
        origin = "marlnb" if path.parent == BUILT_IN_FOLDER else str(path)
        try:
            executor = find_profile(name).executor
            description = _comment(path).partition("\n")[0].lstrip("# ")
        except MarlnbError as error:
            executor, description = "?", f"invalid: {error}"
        rows.append({"profile": name, "executor": executor, "from": origin, "description": description})
    if as_json:
        return print_json({"profiles": rows})
    print_table(list(rows[0]), [list(row.values()) for row in rows])
    say("\nAdd your own as ~/.config/marlnb/profiles/<name>.yaml; `marlnb profiles NAME` shows one to start from.")


def _comment(path: Path) -> str:
    """The comment at the top of a profile's file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "".join(f"{line}\n" for line in takewhile(lambda line: line.startswith("#"), lines))


def _value(value: Any) -> str:
    """YAML on one line."""
    import yaml

    text = str(yaml.safe_dump(value, default_flow_style=True, width=1000, allow_unicode=True))
    return text.removesuffix("...\n").strip()
