"""Config dataclasses to plain JSON and back, without loss; values are checked by `marlnb.values`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from typing import Any, TypeVar

from marlnb.errors import ConfigError, MarlnbError, UnknownNameError, shown, unknown
from marlnb.plugins.registry import Registry
from marlnb.plugins.unloaded import Unloaded, code_named
from marlnb.values import INFINITY, Reader, check_required, check_value, hints, is_required, join_path

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Plain JSON (dict, list, str, int, float, bool, None) for a config dataclass or any value of its fields.

    A registered class is written as `{"name": its name, ...options}`; tuples become lists.

    Raises:
        ConfigError: a value that JSON cannot represent.
    """
    if isinstance(value, Unloaded):
        return {"name": value.name, **to_json(value.options)}
    if is_dataclass(value) and not isinstance(value, type):
        name = {"name": getattr(value, "name", None)} if hasattr(value, "registry") else {}
        return {**name, **{field.name: to_json(getattr(value, field.name)) for field in fields(value)}}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            raise ConfigError("cannot write NaN: it does not equal itself when read back")
        return INFINITY if value > 0 else f"-{INFINITY}"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(f"cannot write a {type(value).__name__} as JSON: {value!r}")


def defaults_json(kind: type[Any]) -> dict[str, Any]:
    """The default of every option that has one, as plain JSON."""
    return {item.name: to_json(_default(item)) for item in fields(kind) if not is_required(item)}


def from_json(data: Mapping[str, Any], kind: type[T], path: str = "", *, origin: str | None = None) -> T:
    """The dataclass that `to_json` wrote.

    Args:
        kind: the class to read; for a registered family (EnvConfig, AlgorithmConfig, ModelConfig), `data["name"]`
            chooses the class.
        path: the position of `data` in a larger document, for messages: "algorithm".
        origin: the file or folder of `data`, if it may come from anyone: parts that name code to import become
            `Unloaded`, and nothing is imported.
    Raises:
        ConfigError: an unknown key or name, a missing one, a wrong type, a value out of range, with its full path.
    """
    try:
        instance: T = _read_dataclass(kind, data, path, origin)
    except RecursionError as error:
        raise ConfigError(f"{path or kind.__name__}: the options are nested too deeply") from error
    return instance


def _read_dataclass(kind: type[Any], data: Any, path: str, origin: str | None = None) -> Any:
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path or kind.__name__} must be a mapping of options; got {shown(data)}")
    options = dict(data)
    registry: Registry[Any] | None = getattr(kind, "registry", None)
    name = options.get("name")
    if registry is not None and origin is not None and isinstance(name, str):
        code = tuple(code_named(registry, name, options))
        if code:
            del options["name"]
            return kind.unloaded(name=name, options=options, origin=origin, code=code)
    if registry is not None:
        kind = _named(registry, kind, options.pop("name", None), path)
    known = {field.name: field for field in fields(kind) if field.init}
    wrong = [key for key in options if key not in known]
    if wrong:
        owner = f"option of {registry.kind} {kind.name!r}" if registry else "option"
        valid = [join_path(path, key) for key in known]
        raise ConfigError(unknown(owner, join_path(path, wrong[0]), valid), at=join_path(path, wrong[0]))
    check_required(kind, options, path)
    read = partial(_read_dataclass, origin=origin)
    values = {key: _read_value(kind, known[key], value, join_path(path, key), read) for key, value in options.items()}
    return _construct(kind, values, path)


def _read_value(kind: type[Any], field: Field[Any], value: Any, path: str, read: Reader) -> Any:
    try:
        return check_value(value, hints(kind)[field.name], path, field, read)
    except ConfigError as error:
        error.at = error.at or path
        raise


def _construct(kind: type[Any], values: Mapping[str, Any], path: str) -> Any:
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}" if path else str(error), at=path) from error
    except MarlnbError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path or kind.__name__}: {error}") from error


def _named(registry: Registry[Any], kind: type, name: Any, path: str) -> type[Any]:
    if name is None:
        if getattr(kind, "name", None) is not None:
            return kind
        part, names = path or registry.kind, ", ".join(registry.names())
        raise ConfigError(f"{part}: no name; valid: {names}, or a class of your own, {part}=module:Class")
    if not isinstance(name, str):
        raise ConfigError(f"{join_path(path, 'name')} must be a text; got {shown(name)}")
    try:
        member: type[Any] = registry.get(name)
    except UnknownNameError as error:
        raise UnknownNameError(f"{path}: {error}" if path else str(error)) from None
    if not issubclass(member, kind):
        raise ConfigError(f"{join_path(path, 'name')}: {name!r} is not a {kind.__name__}")
    return member


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
