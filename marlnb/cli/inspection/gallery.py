"""Trained agents and recordings that open immediately: list, show, add, make, check.

  marlnb gallery                                  a table of all entries
  marlnb gallery show speaker_listener            scores, findings and limits of one
  marlnb gallery make speaker_listener            train it again, in runs/gallery/speaker_listener
  marlnb gallery make FOLDER                      the same for a folder with a recipe.yaml
  marlnb gallery add runs/gallery/mine            copy an entry into your own gallery; its files are checked first
  marlnb gallery check speaker_listener           make it again and compare the numbers; no name: all of them

In Python: mnb.gallery() and mnb.gallery("speaker_listener").run
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.cli.output import print_json, print_table, print_text, quiet_stdout, say
from marlnb.errors import ConfigError, MarlnbError, unknown

if TYPE_CHECKING:
    from marlnb.galleries.check import Comparison
    from marlnb.galleries.entry import Entry

OUT = Path("runs") / "gallery"
COLUMNS = ("name", "what", "kind", "environment", "size")
ACTIONS = ("list", "show", "add", "make", "check")
OPTIONS = {"out": ("make", "check"), "name": ("add",), "json": ("list", "show")}  # and the actions that they are for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", default="list", metavar="ACTION", help=f"{', '.join(ACTIONS)} (list)")
    parser.add_argument("of", nargs="*", default=[], metavar="NAME|FOLDER", help="an entry, or a folder")
    parser.add_argument("--out", metavar="FOLDER", help=f"make, check: the new folder (default {OUT}/NAME)")
    parser.add_argument("--name", default="", help="add: its name in the gallery (default the folder's)")
    parser.add_argument("--json", action="store_true", help="list, show: print JSON and nothing else")


def run(arguments: argparse.Namespace) -> int | None:
    if arguments.action not in ACTIONS:
        raise ConfigError(unknown("action of `marlnb gallery`", arguments.action, ACTIONS))
    for option, actions in OPTIONS.items():
        if getattr(arguments, option) and arguments.action not in actions:
            raise ConfigError(f"--{option} is an option of {' and '.join(actions)}, not of {arguments.action}")
    if arguments.action == "list" and arguments.of:
        raise ConfigError(f"`marlnb gallery list` takes no names; got {arguments.of}. `show` takes one")
    if arguments.action == "check":
        return _check(arguments.of, Path(arguments.out) if arguments.out else OUT / "check")
    if arguments.action != "list" and len(arguments.of) != 1:
        kind = "folder" if arguments.action == "add" else "entry"
        raise ConfigError(f"`marlnb gallery {arguments.action}` takes one {kind}; got {arguments.of or 'none'}")
    if arguments.action == "list":
        _list(arguments.json)
    elif arguments.action == "show":
        _show(arguments.of[0], arguments.json)
    else:
        with quiet_stdout():
            entry = _add(arguments) if arguments.action == "add" else _make(arguments)
        print_text(entry.path)
    return None


def _list(as_json: bool) -> None:
    from marlnb.galleries.gallery import gallery

    rows = gallery().to_json()
    if as_json:
        return print_json({"entries": rows})
    print_table(COLUMNS, [[row[name] for name in COLUMNS] for row in rows])


def _show(name: str, as_json: bool) -> None:
    from marlnb.codec import to_json
    from marlnb.galleries.gallery import gallery

    entry = gallery(name)
    if as_json:
        return print_json({"folder": str(entry.path), "recipe": to_json(entry.recipe), "card": to_json(entry.card)})
    print_text(entry.text)


def _add(arguments: argparse.Namespace) -> Entry:
    from marlnb.galleries.add import add

    return add(arguments.of[0], name=arguments.name)


def _make(arguments: argparse.Namespace) -> Entry:
    from marlnb.galleries.make import make, recipe_folder

    source = recipe_folder(arguments.of[0])
    return make(source, arguments.out or OUT / source.resolve().name)


def _check(names: list[str], out: Path) -> int | None:
    from marlnb.galleries.check import check
    from marlnb.galleries.gallery import gallery

    entries, failed = gallery(), list[str]()
    for name in names or list(entries):
        try:
            entry = entries[name]
            if entry.recipe.command:
                say(f"{name} is made by another library, with: {entry.recipe.command}")
                continue
            with quiet_stdout():
                comparisons: list[Comparison] = check(entry, out / name)
        except MarlnbError as error:  # such as a missing extra; the other entries can be made
            if name not in entries.folders:
                raise
            say(f"{name} could not be made: {error}")
            failed.append(name)
            continue
        failed += [comparison.what for comparison in comparisons if not comparison.holds]
        print_text("\n".join((f"{name}:", *(f"  {comparison}" for comparison in comparisons))))
    return 1 if failed else None
