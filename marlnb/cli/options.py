"""Options on the command line, made from the dataclasses that state them: arguments, their values and their help."""

from __future__ import annotations

import argparse
import re
import textwrap
import types
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from marlnb.composition.option_help import meaning, summary
from marlnb.composition.override_writing import write_value
from marlnb.errors import ConfigError, unknown
from marlnb.values import hints

Config = TypeVar("Config")
Annotation = Any

_PARTS = {
    "env": "env=NAME",
    "algorithm": "algorithm=NAME",
    "model": "model=NAME",
    "critic": "critic=NAME",
    "league": "league=NAME",
    "evolution": "evolution=NAME",
    "algorithms": "algorithms.GROUP=NAME",
    "models": "models.GROUP=NAME",
    "critics": "critics.GROUP=NAME",
}
_TUNED = (
    "  tuned=true",
    "start from settings tuned for the environment and algorithm, or else from defaults that follow from the "
    "environment; false: from the defaults shown here [true or false]",
)
_WIDTH = 100
_COLUMN = 34


def add_config_options(
    parser: argparse.ArgumentParser, kind: type[Any], *, bare: Mapping[str, Any] | None = None
) -> None:
    """Adds one argument for each option of a config dataclass that words on a command line can express.

    `n_envs` becomes `--n-envs N`. A flag that is true by default becomes `--no-NAME`. A sequence takes several words.
    Functions, mappings and dataclasses get no argument. `config_from` reads the result.

    Args:
        bare: by option, the value that `--NAME` without a word stands for.
    """
    for item in fields(kind):
        types_of_words, takes_several = _word_types(hints(kind)[item.name])
        if not item.init or not types_of_words:
            continue
        name, default = item.name.replace("_", "-"), _default_of(item)
        options: dict[str, Any] = {"dest": item.name, "default": argparse.SUPPRESS}
        if types_of_words == (bool,):
            text = _escaped(item.metadata["help"])
            if default:
                parser.add_argument(f"--no-{name}", action="store_false", help=f"switch off: {text}", **options)
            else:
                parser.add_argument(f"--{name}", action="store_true", help=text, **options)
            continue
        unset = default is MISSING or default is None
        options["help"] = _escaped(meaning(kind, item) + ("" if unset else f" (default {write_value(default)})"))
        options |= {"type": _reader(types_of_words), "metavar": "N" if types_of_words == (int,) else "VALUE"}
        if takes_several:
            options["nargs"] = "*"
        elif bare is not None and item.name in bare:
            options |= {"nargs": "?", "const": bare[item.name]}
        parser.add_argument(f"--{name}", required=default is MISSING, **options)


def config_from(arguments: argparse.Namespace, kind: type[Config], **others: Any) -> Config:
    """The config dataclass that the arguments of `add_config_options` describe.

    Args:
        others: options that have no argument.
    Raises:
        ConfigError: a value is out of range.
    """
    return kind(**options_from(arguments, kind), **others)


def options_from(arguments: argparse.Namespace, kind: type[Any]) -> dict[str, Any]:
    """The options that were given on the command line, by name."""
    given = {item.name: getattr(arguments, item.name) for item in fields(kind) if hasattr(arguments, item.name)}  # type: ignore[arg-type]
    for name, value in given.items():
        if isinstance(value, list):
            alternatives = _alternatives(hints(kind)[name])
            origins: list[Any] = [get_origin(alternative) for alternative in alternatives]
            takes_one_word = str in alternatives or int in alternatives or Literal in origins
            given[name] = value[0] if len(value) == 1 and takes_one_word else tuple(value)
    return given


def config_from_text(text: str, kind: type[Config]) -> Config:
    """The config dataclass that `name=value,name=[value,value]` describes.

    Raises:
        ConfigError: an unknown option, or a value of the wrong type or out of range.
    """
    word_types = {item.name: _word_types(hints(kind)[item.name]) for item in fields(kind)}  # type: ignore[arg-type]
    valid = [name for name, (types_of_words, _) in word_types.items() if types_of_words]
    options: dict[str, Any] = {}
    for part in filter(None, re.split(r",(?![^\[]*\])", text)):  # at commas outside of brackets
        name, _, word = part.partition("=")
        if name not in valid:
            raise ConfigError(unknown(f"option of {kind.__name__}", name, valid))
        types_of_words, takes_several = word_types[name]
        if types_of_words == (bool,):
            options[name] = {"true": True, "false": False}.get(word.lower(), word)
            continue
        read = _reader(types_of_words)
        is_list = takes_several and word.startswith("[") and word.endswith("]")
        try:
            options[name] = tuple(map(read, word[1:-1].split(","))) if is_list else read(word)
        except argparse.ArgumentTypeError as error:
            raise ConfigError(f"{name}: {error}") from error
    return kind(**options)


def _word_types(annotation: Annotation) -> tuple[tuple[type, ...], bool]:
    """The types that one word may have, none if no word can express a value; and whether it takes several words."""
    word_types: list[type] = []
    takes_several = False
    for alternative in _alternatives(annotation):
        origin: Any = get_origin(alternative)
        if origin is tuple:
            takes_several = True
            for member in get_args(alternative):
                word_types += [] if member is Ellipsis else _word_types(member)[0]
        elif origin is Literal:
            word_types += [type(value) for value in get_args(alternative)]
        elif alternative in (bool, int, float, str):
            word_types.append(alternative)
    return tuple(dict.fromkeys(word_types)), takes_several


def _alternatives(annotation: Annotation) -> list[Annotation]:
    """The members of a union, without None."""
    origin: Any = get_origin(annotation)
    members = get_args(annotation) if origin in (Union, types.UnionType) else (annotation,)
    return [member for member in members if member is not types.NoneType]


def _reader(word_types: Sequence[type]) -> Callable[[str], Any]:
    """Reads a word as the first type that fits, numbers before texts."""

    def read(word: str) -> Any:
        for kind in (int, float):
            if kind in word_types:
                try:
                    return kind(word)
                except ValueError:
                    continue
        if str in word_types:
            return word
        raise argparse.ArgumentTypeError(f"expected a number; got {word!r}")

    return read


def _escaped(text: str) -> str:
    """For argparse, which reads % as the start of a format."""
    return text.replace("%", "%%")


def _default_of(item: Field[Any]) -> Any:
    return item.default_factory() if item.default_factory is not MISSING else item.default


def part_texts(experiment: type[Any], overrides: Sequence[str], config_dir: str | None) -> Iterator[str]:
    """The options of an experiment, how its parts are chosen, and the options of the parts that overrides name."""
    parts = [item for item in fields(experiment) if item.name in _PARTS]
    yield "options of the experiment:\n" + options_text(experiment, skip=(*_PARTS, "tuned")) + _lines(*_TUNED)
    yield "parts, chosen by name:\n" + "".join(f"  {_PARTS[item.name]:<32}{item.metadata['help']}\n" for item in parts)
    if not overrides:
        yield "`marlnb train algorithm=mappo --help` shows that part's options; `marlnb list algorithms` has the names"
        return
    from marlnb.composition.compose import chosen_parts

    for part, kind in chosen_parts(overrides, config_dir).items():
        description = summary(kind)
        yield f"{part}={kind.name}{': ' if description else ''}{description}\n" + options_text(kind, f"{part}.")


def options_text(kind: type[Any], prefix: str = "", skip: Container[str] = ()) -> str:
    """One entry per option: how to write it with its default, then what it means, its unit and its range."""
    return "".join(_entry(kind, item, prefix) for item in fields(kind) if item.init and item.name not in skip)


def _entry(kind: type[Any], item: Field[Any], prefix: str) -> str:
    default = _default_of(item)
    if is_dataclass(default) and not hasattr(default, "registry"):  # options of its own, as league.main
        return options_text(type(default), f"{prefix}{item.name}.")
    written = "" if default is MISSING else write_value(default)
    return _lines(f"  {prefix}{item.name}={written}", meaning(kind, item))


def _lines(left: str, text: str) -> str:
    lines = textwrap.wrap(text, _WIDTH - _COLUMN) or [""]
    first = f"{left:<{_COLUMN}}{lines[0]}" if len(left) < _COLUMN - 1 else f"{left}\n{'':<{_COLUMN}}{lines[0]}"
    return "\n".join([first, *(f"{'':<{_COLUMN}}{line}" for line in lines[1:])]) + "\n"
