"""How values are given to a sweep: `-p seed=0..4`, a YAML file, or Python's lists and ranges.

| on the command line | in a file and in Python | is |
| --- | --- | --- |
| `-p algorithm=mappo,ippo` | `["mappo", "ippo"]` | two values: an axis of the sweep |
| `-p seed=0..4`, `-p seed=0..8..2` | `range(5)`, `[0, 2, 4, 6, 8]` | five values; the last is included |
| `-p frames=1_000_000` | `1_000_000` | one value |
| `-p 'hidden=[64,64]'` | `[[64, 64]]` | one value, a list |
| `-p 'hidden=[64,64],[128]'` | `[[64, 64], [128]]` | two values, lists |
| `-p 'name="a,b"'` | `"a,b"` | one value, a text with a comma |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from marlnb.batch.sweep.json_values import shortened
from marlnb.batch.sweep.parameters import RUN, Parameter, known, named, read_parameters
from marlnb.batch.sweep.sweep import Sweep
from marlnb.errors import ConfigError

MOST_JOBS = 100_000
_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})(?:\.\.(-?\d{1,18}))?")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Values:
    """What a parameter is given: one value, or the values of an axis."""

    items: tuple[Any, ...]
    is_axis: bool


def values_of_texts(texts: Sequence[str]) -> dict[str, Values]:
    """What `-p` was given, by name.

    Raises:
        ConfigError: no `=`, a name given twice, a range with no value, JSON that is cut short.
    """
    return {name: _values(name, text) for name, text in named(texts)}


def values_of_python(given: Mapping[str, Any]) -> dict[str, Values]:
    """A list, a tuple, a range or an array is an axis; anything else is one value, and so is `[[64, 64]]`: a list."""
    return {name: _axis(value) or Values((value,), is_axis=False) for name, value in given.items()}


def values_of_file(path: Path) -> dict[str, Values]:
    """What a YAML (or JSON) file gives by name: lists are axes, as in Python.

    Raises:
        ConfigError: it cannot be read, holds no mapping, or a name twice.
    """
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _NoTwice)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
        raise ConfigError(f"{path} must map the names of parameters to values, as `seed: [0, 1, 2]`; got {data!r}")
    return values_of_python(data)


def make_sweep(notebook: Path, given: Mapping[str, Values]) -> Sweep:
    """The sweep of a notebook over what is given, every value checked against its parameters.

    Raises:
        ConfigError: a parameter that the notebook does not have or that the batch sets itself, a value that is not
            what it takes, a value that is needed and not given, or too many combinations.
        BatchError: a value given twice.
    """
    have = read_parameters(notebook)
    if RUN in given:
        raise ConfigError(f"the parameter {RUN!r} is set to each job's own folder; --out says where the batch lies")
    missing = [name for name, parameter in have.items() if parameter.is_required and name not in (*given, RUN)]
    if missing:
        raise ConfigError(f"{notebook.name} needs a value for {', '.join(missing)}: it has no default")
    checked = {name: _checked(known(have, name, notebook), values) for name, values in given.items()}
    axes = {name: values for name, values in checked.items() if given[name].is_axis}
    fixed = {name: values[0] for name, values in checked.items() if not given[name].is_axis}
    sweep = Sweep(axes, fixed)
    if len(sweep) > MOST_JOBS:
        raise ConfigError(f"that makes {len(sweep):,} jobs; a batch has at most {MOST_JOBS:,}")
    return sweep


def _checked(parameter: Parameter, values: Values) -> tuple[Any, ...]:
    return tuple(parameter.check(_number(parameter, value)) for value in values.items)


def _number(parameter: Parameter, value: Any) -> Any:
    """A number as Python writes it, which neither JSON nor YAML reads as one: `1_000_000`, `.5`, `1e-3`."""
    if isinstance(value, str) and parameter.kind in (int, float):
        for read in (int, float):
            try:
                return read(value)
            except ValueError:
                continue
    return value


def _values(name: str, text: str) -> Values:
    items = list(_items(name, text))
    if len(items) == 1 and not items[0][1]:
        return Values((items[0][0],), is_axis=False)
    found: list[Any] = []
    for value, is_range in items:
        found.extend(value if is_range else [value])
    return Values(tuple(found), is_axis=True)


def _items(name: str, text: str) -> Iterator[tuple[Any, bool]]:
    """Each item between commas, and whether it is a range of several values."""
    position, alone = 0, True
    while True:
        value, stop = _json(name, text, position)
        if stop < 0:
            comma = text.find(",", position)
            stop = len(text) if comma < 0 else comma
            value = _range(name, _word(name, text, position, stop, alone))
        yield value, isinstance(value, range)
        if stop == len(text):
            return
        position, alone = stop + 1, False


def _json(name: str, text: str, start: int) -> tuple[Any, int]:
    """The JSON that begins here and goes on to a comma or the end, and where it ends; -1 where there is none.

    Raises ConfigError for what begins as a list, a mapping or a quoted text and is none.
    """
    begin = start + len(text[start:]) - len(text[start:].lstrip())
    try:
        value, stop = _DECODER.raw_decode(text, begin)
        stop += len(text[stop:]) - len(text[stop:].lstrip())
        problem = f"there is {text[stop : stop + 10]!r} behind it"
    except (ValueError, RecursionError) as error:
        value, stop, problem = None, -1, str(error)
    if stop >= 0 and text[stop : stop + 1] in ("", ","):
        return value, stop
    if text[begin : begin + 1] in ('"', "[", "{"):
        raise ConfigError(
            f"-p {name}=: {shortened(repr(text[begin:]))} begins as JSON and is none ({problem}); texts within "
            f'it are quoted, as \'["relu","tanh"]\', and one that begins with {text[begin]} is quoted whole'
        )
    return None, -1


def _word(name: str, text: str, start: int, stop: int, alone: bool) -> str:
    """A text that is not quoted: as it is when it stands alone, without the spaces around it among others."""
    if alone and stop == len(text):
        return text
    word = text[start:stop].strip()
    if not word:
        raise ConfigError(f'-p {name}={shortened(text)}: nothing between two commas; an empty text is written ""')
    return word


def _range(name: str, word: str) -> str | range:
    found = _RANGE.fullmatch(word)
    if found is None:
        return word
    first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
    values = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
    if not values:
        raise ConfigError(f"-p {name}={word}: no value lies in that range; write FIRST..LAST or FIRST..LAST..STEP")
    if values[MOST_JOBS:]:
        raise ConfigError(f"-p {name}={word}: more than {MOST_JOBS:,} values")
    return values


def _axis(value: Any) -> Values | None:
    if hasattr(value, "tolist") and hasattr(value, "dtype") and getattr(value, "ndim", 1) > 0:
        value = value.tolist()
    return Values(tuple(value), is_axis=True) if isinstance(value, list | tuple | range) else None


class _NoTwice(yaml.SafeLoader):
    """YAML in which a name that is given twice is an error, not silently the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]  # type: ignore[no-untyped-call]
        twice = [name for k, name in enumerate(names) if name in names[:k]]
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[0]!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)
