"""Checks the value of a config field against the field's annotation and metadata.

The same check serves dataclasses made in Python, read from JSON, and composed from overrides.
"""

from __future__ import annotations

import math
import numbers
import types
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from marlnb.errors import ConfigError, shown, unknown

MAX_INTEGER = 2**63 - 1  # what tensors and files can hold
INFINITY = "Infinity"  # JSON has no infinities: they are written as these words
_INFINITIES = {INFINITY: math.inf, f"-{INFINITY}": -math.inf}
_KINDS: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}

_HINTS: dict[type[Any], dict[str, Any]] = {}

Number = TypeVar("Number", int, float)
Reader = Callable[[type, Any, str], Any]  # (class, JSON data, its path) -> dataclass


def validate(config: Any) -> None:
    """Checks the values of a new frozen dataclass, and converts them to their canonical form.

    Lists become tuples if the field is annotated as a tuple, floats without a fraction become ints for int fields,
    numpy scalars become Python's, and tuples in free-form mappings become lists. So the dataclass in memory equals the
    one that is read back from a file.

    Raises:
        ConfigError: a wrong type or a value out of range, or a class of environments, models or algorithms without a
            name.
    """
    kind = type(config)
    name = getattr(kind, "name", "") if hasattr(kind, "registry") else kind.__name__
    if not name:
        raise ConfigError(
            f"{kind.__qualname__} has no name: register it, as with @mnb.environment('my/game') for an environment"
        )
    for field in fields(config):
        path = f"{name}.{field.name}"
        value = check_value(getattr(config, field.name), hints(kind)[field.name], path, field)
        object.__setattr__(config, field.name, value)


def hints(kind: type[Any]) -> dict[str, Any]:
    """The annotations of a dataclass's fields, resolved.

    Raises:
        ConfigError: an annotation uses a name that its module does not have at run time.
    """
    if kind in _HINTS:
        return _HINTS[kind]
    try:
        return _HINTS.setdefault(kind, get_type_hints(kind))
    except NameError as error:
        raise ConfigError(
            f"{kind.__module__}.{kind.__qualname__}: cannot resolve an annotation ({error}); "
            "import that name outside `if TYPE_CHECKING`"
        ) from error


def describe(annotation: Any) -> str:
    """An annotation in words: `a number`, `a text or none`, `a list of whole numbers`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _KINDS:
        return _KINDS[annotation]
    if annotation is type(None):
        return "none"
    if annotation is Any:
        return "anything"
    if origin in (Union, types.UnionType):
        return " or ".join(describe(argument) for argument in arguments)
    if origin is Literal:
        return " or ".join(repr(argument) for argument in arguments)
    if origin in (tuple, list):
        inner = {describe(argument) for argument in arguments if argument is not Ellipsis}
        items = inner.pop().split(" or ") if len(inner) == 1 else [""]
        return f"a list of {' or '.join(map(_plural, items))}" if all(map(_plural, items)) else "a list"
    if origin is Callable:
        return "a function"
    if origin is not None and issubclass(origin, Mapping):
        return "a mapping"
    if isinstance(annotation, type):
        article = "an" if annotation.__name__[0] in "AEIOU" else "a"
        return f"{article} {annotation.__name__}"
    return "anything"


def _plural(noun: str) -> str:
    """`whole numbers` for `a whole number`; empty for what has no article, such as `none`."""
    article, _, name = noun.partition(" ")
    kind, of, items = name.partition(" of ")
    return f"{kind}s{of}{items}" if article in ("a", "an") and name else ""


def join_path(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def is_required(field: Field[Any]) -> bool:
    """Whether a field has no default."""
    return field.default is MISSING and field.default_factory is MISSING


def check_required(kind: type[Any], given: Container[str], path: str = "") -> None:
    """Raises ConfigError unless all options of a dataclass that have no default are given; `path` is for messages."""
    missing = [field for field in fields(kind) if field.init and is_required(field) and field.name not in given]
    if missing:
        help_text = missing[0].metadata.get("help")
        hint = f"; {help_text}" if help_text else ""
        raise ConfigError(f"{join_path(path, missing[0].name)} has no default and must be given{hint}")


def check_value(value: Any, annotation: Any, path: str, field: Field[Any], read: Reader | None = None) -> Any:
    """The value, converted to the field's type and checked against its range; `path` is for messages."""
    if isinstance(value, int | float) and abs(value) > MAX_INTEGER:
        _check_range(value, path, field.metadata)  # the option's own bounds say more than those of 64 bits
    value = _cast(value, annotation, path, read)
    _check_range(value, path, field.metadata)
    return value


def checked_number(value: object, kind: type[Number], name: str, **bounds: float) -> Number:
    """The finite number that an argument must be, as Python's own.

    Args:
        kind: int or float.
        name: of the argument, for the message.
        bounds: its range, in the words of a config field's metadata: ge, gt, le, lt.
    Raises:
        ConfigError: a number of another kind, nan, an infinity or one out of range, or no number.
    """
    if isinstance(value, str):  # "Infinity" as well
        raise _wrong(value, kind, name)
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral) and not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number; got {shown(value)}")
    number = kind(_cast_scalar(value, kind, name))
    _check_range(number, name, bounds)
    return number


def _cast(value: Any, annotation: Any, path: str, read: Reader | None) -> Any:
    """`value` converted to `annotation`; for a value from JSON, `read` makes the dataclasses in it."""
    if annotation is Any:
        return _free(value, path)
    if annotation is None or annotation is type(None):
        if value is None:
            return None
        raise _wrong(value, annotation, path)
    if annotation in _KINDS:
        return _cast_scalar(value, annotation, path)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _cast(value, arguments[0], path, read)
    if origin in (Union, types.UnionType):
        return _cast_union(value, annotation, path, read)
    if origin is Literal:
        return _one_of(value, arguments, path)
    if annotation in (tuple, list) or origin in (tuple, list) or origin is Sequence:
        return _cast_sequence(value, annotation, path, read)
    if origin is Callable:
        if callable(value):
            return value
        raise _wrong(value, annotation, path)
    holder = origin or annotation
    if isinstance(holder, type) and issubclass(holder, Mapping):
        return _cast_mapping(value, annotation, path, read)
    if isinstance(annotation, type) and isinstance(value, annotation):
        return value
    if read is not None and isinstance(annotation, type) and is_dataclass(annotation):
        return read(annotation, {"name": value} if isinstance(value, str) else value, path)
    raise _wrong(value, annotation, path)


def _cast_union(value: Any, annotation: Any, path: str, read: Reader | None) -> Any:
    arguments = get_args(annotation)
    if value is None and type(None) in arguments:
        return None
    real = [argument for argument in arguments if argument is not type(None)]
    exact = [argument for argument in real if isinstance(argument, type) and type(value) is argument]
    if len(real) == 1 or exact:
        return _cast(value, (exact or real)[0], path, read)
    for argument in real:
        try:
            return _cast(value, argument, path, read)
        except ConfigError:
            continue
    raise _wrong(value, annotation, path)


def _cast_sequence(value: Any, annotation: Any, path: str, read: Reader | None) -> Any:
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if not isinstance(value, tuple | list):
        raise _wrong(value, annotation, path)
    kinds: Sequence[Any]
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(value) != len(arguments):
            raise ConfigError(f"{path} must have {len(arguments)} values; got {len(value)}: {shown(value)}")
        kinds = arguments
    else:
        kinds = [arguments[0] if arguments else Any] * len(value)
    items = [_cast(item, kind, f"{path}[{k}]", read) for k, (item, kind) in enumerate(zip(value, kinds, strict=True))]
    return items if origin is list else tuple(items)


def _cast_mapping(value: Any, annotation: Any, path: str, read: Reader | None) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, annotation, path)
    keyed = get_args(annotation)
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(f"{path}: keys must be texts; got {shown(key)}")
    return {key: _cast(item, keyed[1] if keyed else Any, join_path(path, key), read) for key, item in value.items()}


def _free(value: Any, path: str) -> Any:
    """A value of a field annotated Any: plain data, in the form in which JSON returns it."""
    if isinstance(value, Mapping):
        return _cast_mapping(value, Mapping[str, Any], path, read=None)
    if isinstance(value, tuple | list):
        return [_free(item, f"{path}[{k}]") for k, item in enumerate(value)]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return _bounded(value, path)
    if isinstance(value, numbers.Real):
        if not math.isfinite(value):
            raise ConfigError(f"{path} must be a finite number; got {shown(value)}")
        return float(value)
    expected = "plain data (texts, numbers, true/false, none, lists, mappings)"
    raise ConfigError(f"{path} must be {expected}; got {shown(value)}")


def _cast_scalar(value: Any, kind: Any, path: str) -> bool | int | float | str:
    is_bool = isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
    if (kind is bool and is_bool) or (kind is str and isinstance(value, str)):
        return kind(value) if is_bool else value
    if kind is float and isinstance(value, str) and value in _INFINITIES:
        return _INFINITIES[value]
    if isinstance(value, numbers.Integral) and not is_bool:
        _bounded(value, path)
    if isinstance(value, numbers.Real) and not is_bool:
        if kind is float and not math.isnan(value):
            return float(value)
        if kind is int and (isinstance(value, numbers.Integral) or float(value).is_integer()):
            return _bounded(value if isinstance(value, numbers.Integral) else int(float(value)), path)  # frames=1e6
    raise _wrong(value, kind, path)


def _bounded(value: Any, path: str) -> int:
    """Raises ConfigError unless an integer fits into 64 bits."""
    if not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise ConfigError(f"{path} must be between {-MAX_INTEGER} and {MAX_INTEGER}; got {shown(value, 40)}")
    return int(value)


def _wrong(value: Any, annotation: Any, path: str) -> ConfigError:
    return ConfigError(f"{path} must be {describe(annotation)}; got {shown(value)}")


def _one_of(value: Any, choices: Sequence[Any], path: str) -> Any:
    for choice in choices:
        if value == choice and isinstance(value, bool) == isinstance(choice, bool):
            return choice
    texts = [str(choice) for choice in choices]
    if str(value) in texts:  # "1" where 1 is valid
        raise ConfigError(f"{path} must be {' or '.join(map(repr, choices))}; got {shown(value)}")
    raise ConfigError(f"{path}: {unknown('choice', str(value), texts)}")


def _check_range(value: Any, path: str, metadata: Mapping[str, Any]) -> None:
    if value is None or not metadata:
        return
    if isinstance(value, tuple | list):
        for k, item in enumerate(value):
            _check_range(item, f"{path}[{k}]", metadata)
        return
    if metadata.get("choices"):
        _one_of(value, metadata["choices"], path)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    for word, sign, holds in _BOUNDS:
        bound = metadata.get(word)
        if bound is not None and not holds(value, bound):
            raise ConfigError(f"{path} must be {sign} {_quantity(bound, metadata.get('unit', ''))}; got {shown(value)}")
    if isinstance(value, float) and math.isinf(value) and metadata.get("le", math.inf) != math.inf:
        raise ConfigError(f"{path} must be finite; got {value!r}")


def _quantity(number: float, unit: str) -> str:
    """1 frame, 2 frames, 1 s, 0.5."""
    if number == 1 and len(unit) > 1:
        unit = unit.removesuffix("s")
    return f"{number} {unit}".rstrip()


_BOUNDS: tuple[tuple[str, str, Callable[[Any, Any], bool]], ...] = (
    ("ge", "at least", lambda value, bound: value >= bound),
    ("gt", "more than", lambda value, bound: value > bound),
    ("le", "at most", lambda value, bound: value <= bound),
    ("lt", "less than", lambda value, bound: value < bound),
)
