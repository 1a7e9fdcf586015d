"""Interpolations, such as `${algorithm.lr}`: their number is checked before OmegaConf resolves them.

OmegaConf resolves a value again at each place that refers to it. If each of n values refers twice to the one before,
there are 2^n to resolve.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from marlnb.errors import ConfigError

MAX_RESOLVED = 2000
TEXT_LENGTH = 1000  # characters of a text that count as one value
_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*(?:\.\w+)*)\}")


def has_interpolations(options: Any) -> bool:
    return any("${" in text for text in _texts(options))


def check_interpolations(options: Mapping[str, Any]) -> None:
    """Checks how many values these options can stand for, with the values of interpolations counted at each use.

    Interpolations of values without interpolations are followed. Of n others the worst case is assumed: chains that
    lead to n_1 n_2 ... n_k values, with n_1 + ... + n_k = n, which is at most 3^(n/3).

    Raises:
        ConfigError: more than `MAX_RESOLVED`.
    """
    n_values, n_others = 1, 0
    for text in _texts(options):
        targets = [_value_at(options, match[1]) for match in _REFERENCE.finditer(text)]
        simple = [target for target in targets if not has_interpolations(target)]
        n_values += sum(map(_size, simple))
        n_others += text.count("${") - len(simple)
    if n_others > 3 * MAX_RESOLVED or n_values * 3 ** (n_others / 3) > MAX_RESOLVED:
        raise ConfigError(
            f"interpolations (${{...}}) may stand for at most {MAX_RESOLVED:,} values in all; {n_others} of them refer "
            f"to other interpolations or call functions, and the rest stand for {n_values - 1:,} values"
        )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _value_at(options: Any, path: str) -> Any:
    """The value at a path; None if there is none."""
    for key in path.split("."):
        options = options.get(key) if isinstance(options, Mapping) else None
    return options


def _size(value: Any) -> int:
    if isinstance(value, Mapping | list):
        return 1 + sum(map(_size, value.values() if isinstance(value, Mapping) else value))
    return 1 + (len(value) // TEXT_LENGTH if isinstance(value, str) else 0)
