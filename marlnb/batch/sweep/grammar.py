"""How values are written: `-p seed=0..4`, a YAML file, or Python's lists and ranges.

| on the command line | in a file and in Python | meaning |
| --- | --- | --- |
| `-p algorithm=mappo,ippo` | `["mappo", "ippo"]` | two values: an axis of the sweep |
| `-p seed=0..4`, `-p seed=0..8..2` | `range(5)`, `[0, 2, 4, 6, 8]` | five values; the last is included |
| `-p frames=1_000_000` | `1_000_000` | one value |
| `-p 'hidden=[64,64]'` | `[[64, 64]]` | one value, a list |
| `-p 'hidden=[64,64],[128]'` | `[[64, 64], [128]]` | two values, lists |
| `-p 'name="a,b"'` | `"a,b"` | one value, a text with a comma |
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from marlnb.batch.sweep.json_values import shorten
from marlnb.batch.sweep.parameters import RUN, find_parameter, read_parameters, split_assignments
from marlnb.batch.sweep.sweep import MAX_JOBS, Sweep
from marlnb.errors import ConfigError, shown
from marlnb.text_files import read_yaml

_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})(?:\.\.(-?\d{1,18}))?")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Values:
    """Values of one parameter.

    Attributes:
        items: the values.
        is_axis: whether they are an axis of the sweep; otherwise there is one value.
    """

    items: tuple[Any, ...]
    is_axis: bool


def values_of_texts(texts: Sequence[str]) -> dict[str, Values]:
    """The values of `-p NAME=VALUES`, by name.

    Raises:
        ConfigError: no `=`, a duplicate name, an empty range, or incomplete JSON.
    """
    return {name: _values(name, text) for name, text in split_assignments(texts)}


def values_of_python(parameters: Mapping[str, Any]) -> dict[str, Values]:
    """A list, tuple, range or array is an axis, anything else one value; `[[64, 64]]` is one value that is a list."""
    return {name: _axis(value) or Values((value,), is_axis=False) for name, value in parameters.items()}


def values_of_file(path: Path) -> dict[str, Values]:
    """The values in a YAML or JSON file, by name; lists are axes, as in Python.

    Raises:
        ConfigError: it cannot be read, is not a mapping, or has a duplicate name.
    """
    data = read_yaml(path, _UniqueKeyLoader)
    if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
        raise ConfigError(
            f"{path}: expected names of parameters with values, such as `seed: [0, 1]`; got {shown(data)}"
        )
    return values_of_python(data)


def make_sweep(notebook: Path, values: Mapping[str, Values]) -> Sweep:
    """The sweep of a notebook over some values, each checked against the notebook's parameters.

    Raises:
        ConfigError: an unknown parameter, the parameter `run`, an invalid or missing value.
        BatchError: a duplicate value, or too many combinations.
    """
    parameters = read_parameters(notebook)
    if RUN in values:
        raise ConfigError(
            f"the parameter {RUN!r} cannot be given: it is each job's folder; --out sets the batch's folder"
        )
    missing = [name for name, parameter in parameters.items() if parameter.is_required and name not in (*values, RUN)]
    if missing:
        raise ConfigError(
            f"{notebook.name} needs a value for {', '.join(missing)}, without a default: -p {missing[0]}=..."
        )
    checked = {}
    for name, given in values.items():
        parameter = find_parameter(parameters, name, notebook)
        checked[name] = tuple(parameter.check(item) for item in given.items)
    axes = {name: items for name, items in checked.items() if values[name].is_axis}
    fixed = {name: items[0] for name, items in checked.items() if not values[name].is_axis}
    return Sweep(axes, fixed)


def _values(name: str, text: str) -> Values:
    items = list(_items(name, text))
    if len(items) == 1 and not isinstance(items[0], range):
        return Values((items[0],), is_axis=False)
    parts = (item if isinstance(item, range) else [item] for item in items)
    return Values(tuple(itertools.chain.from_iterable(parts)), is_axis=True)


def _items(name: str, text: str) -> Iterator[Any]:
    """The items between commas: JSON values, texts and ranges."""
    position, alone = 0, True
    while True:
        value, stop = _json(name, text, position)
        if stop < 0:
            comma = text.find(",", position)
            stop = len(text) if comma < 0 else comma
            value = _range(name, _word(name, text, position, stop, alone))
        yield value
        if stop == len(text):
            return
        position, alone = stop + 1, False


def _json(name: str, text: str, start: int) -> tuple[Any, int]:
    """The JSON value that starts here and ends at a comma or at the end of the text, and its end; -1 without one.

    Raises:
        ConfigError: it starts as a list, a mapping or a quoted text and is not valid JSON.
    """
    begin = start + len(text[start:]) - len(text[start:].lstrip())
    try:
        value, stop = _DECODER.raw_decode(text, begin)
        stop += len(text[stop:]) - len(text[stop:].lstrip())
        problem = f"followed by {text[stop : stop + 10]!r}"
    except (ValueError, RecursionError) as error:
        value, stop, problem = None, -1, str(error)
    if stop >= 0 and text[stop : stop + 1] in ("", ","):
        return value, stop
    if text[begin : begin + 1] in ('"', "[", "{"):
        raise ConfigError(
            f"-p {name}=: expected JSON; got {shorten(repr(text[begin:]))} ({problem}). Quote texts in a list, e.g. "
            f'\'["relu","tanh"]\', and quote a text that starts with {text[begin]}'
        )
    return None, -1


def _word(name: str, text: str, start: int, stop: int, alone: bool) -> str:
    """A text without quotes: unchanged if it is the only item, else without the spaces around it."""
    if alone and stop == len(text):
        return text
    word = text[start:stop].strip()
    if not word:
        raise ConfigError(f'-p {name}={shorten(text)}: no value between two commas; write "" for an empty text')
    return word


def _range(name: str, word: str) -> str | range:
    match = _RANGE.fullmatch(word)
    if match is None:
        return word
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    values = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
    if not values:
        raise ConfigError(f"-p {name}={word}: the range is empty; write FIRST..LAST or FIRST..LAST..STEP")
    if values[MAX_JOBS:]:
        raise ConfigError(f"-p {name}={word}: the range has more than {MAX_JOBS:,} values, the maximum")
    return values


def _axis(value: Any) -> Values | None:
    if hasattr(value, "tolist") and hasattr(value, "dtype") and getattr(value, "ndim", 1) > 0:
        value = value.tolist()
    return Values(tuple(value), is_axis=True) if isinstance(value, list | tuple | range) else None


class _UniqueKeyLoader(yaml.SafeLoader):
    """A YAML loader that raises an error for a duplicate key, where the default keeps the last value.

    It reads `1e-3` as a number, as JSON and YAML 1.2 do; the default reads a text.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]  # type: ignore[no-untyped-call]
        duplicates = [name for k, name in enumerate(names) if name in names[:k]]
        if duplicates:
            raise yaml.constructor.ConstructorError(None, None, f"{duplicates[0]!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


_UniqueKeyLoader.add_implicit_resolver(  # type: ignore[no-untyped-call]
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$"), list("-+.0123456789")
)
