"""Which code that run folders name may run here: that of the user's own training runs, and what the user has allowed.

A run folder can come from anyone, and its experiment may name a class, a constructor or a function to import. Reading
a folder imports none of it (`marlnb.plugins.unloaded`). What needs that code runs it if the part of the experiment that
names it, with all of its options, is in the user's own record: small files outside of any run folder, in
`$MARLNB_DATA_DIR/trusted`, `$XDG_DATA_HOME/marlnb/trusted` or `~/.local/share/marlnb/trusted`. Training an experiment
records its parts. So folders may be moved and copied, and jobs on other nodes with the same home need not ask.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from marlnb.codec import from_json, to_json
from marlnb.errors import TrustError
from marlnb.plugins.import_paths import file_of, is_import_path, load_object
from marlnb.plugins.registry import ask_before_import
from marlnb.plugins.unloaded import NamedCode, Unloaded

How = Literal["trained", "granted"]
"""trained: in a run of this user, whose code is also searched in the current folder; granted: by `trust=True`."""

DATA_VARIABLE = "MARLNB_DATA_DIR"
_session: dict[str, How] = {}  # by digest; also where the record cannot be written
Part = TypeVar("Part")


def data_folder() -> Path:
    """The user's own folder for marlnb's data. Raises RuntimeError: the home folder is unknown."""
    chosen = os.environ.get(DATA_VARIABLE)
    data = Path(chosen or os.path.join(os.environ.get("XDG_DATA_HOME") or "~/.local/share", "marlnb"))
    return data.expanduser()


def record_folder() -> Path:
    """The folder of the record: one file for each trusted part."""
    return data_folder() / "trusted"


def trusted(part: Unloaded) -> How | None:
    """How the user came to trust a part; None if they do not."""
    digest = _digest(part)
    if digest not in _session:
        for how in ("trained", "granted"):
            if _file(digest, how).is_file():
                return how
    return _session.get(digest)


def trust(parts: Iterable[Unloaded], how: How) -> str:
    """Trusts parts, in this process and in the record.

    Returns:
        why the record could not be written, for example on a read-only disk, so that other processes will ask; or "".
    """
    problem = ""
    for part in parts:
        digest = _digest(part)
        if _session.get(digest) != "trained":
            _session[digest] = how
        named = [code.value for code in part.code]
        entry = {"code": named, "origin": os.path.abspath(part.origin), "part": to_json(part)}
        try:
            _write(_file(digest, how), json.dumps(entry, indent=1) + "\n")
        except (OSError, RuntimeError) as error:  # RuntimeError: the home folder is unknown
            problem = f"{record_folder()} cannot be written: {getattr(error, 'strerror', None) or error}"
    return problem


def loaded(part: Part, where: str = "") -> Part:
    """The part itself; for an unloaded one, the config of its own class, with the code that it names imported.

    Args:
        part: an environment's, algorithm's or model's config.
        where: its position in the experiment, for messages: "env".
    Raises:
        TrustError: the user does not trust that code.
        ConfigError: it cannot be imported, or the options are not valid.
    """
    if not isinstance(part, Unloaded):
        return part
    how = trusted(part)
    if how is None:
        raise TrustError(describe({where: part}, part.origin))
    if how == "granted":
        for code in part.code:
            if is_import_path(code.value):
                load_object(code.value, search_here=False)
    family = next(kind for kind in type(part).__mro__ if "registry" in vars(kind))
    config: Part = from_json(to_json(part), family, where)
    return config


def class_part(path: str, origin: str) -> Unloaded:
    """A class without options: what composing overrides imports, since the class says which options there are."""
    return Unloaded(name=path, options={}, origin=origin, code=(NamedCode("name", path, "imports"),))


@contextmanager
def asking_for_classes(origin: str, where: str, *, grant: bool = False) -> Iterator[None]:
    """Within, composing overrides that a file holds imports only classes that the user trusts.

    Args:
        origin: the file's folder.
        where: what is composed, for messages.
        grant: the user allows every class that the overrides name.
    Raises:
        TrustError: they name another class.
    """

    def ask(path: str) -> None:
        part = class_part(path, origin)
        if grant and trusted(part) is None:
            trust([part], "granted")
        how = trusted(part)
        if how is None:
            raise TrustError(describe({where: part}, origin))
        if how == "granted":
            load_object(path, search_here=False)

    token = ask_before_import.set(ask)
    try:
        yield
    finally:
        ask_before_import.reset(token)


def describe(parts: Mapping[str, Unloaded], origin: str) -> str:
    """What would run, from which files, and how to allow it."""
    return (
        f"{origin} names code that none of your own training runs used, so it was not run:\n{code_text(parts)}\n"
        "if you trust it: trust=True in Python, for example Run.open(folder, trust=True), or --trust in a command"
    )


def code_text(parts: Mapping[str, Unloaded]) -> str:
    """One line for each thing that parts name: where, what happens to it, and its file."""
    return "\n".join(
        f"  {'.'.join(filter(None, (where, '' if code.option == 'name' else code.option)))}: "
        f"{code.effect} {code.value}{_source(code.value)}"
        for where, part in parts.items()
        for code in part.code
    )


def _source(value: str) -> str:
    if not is_import_path(value):
        return ""
    module = value.partition(":")[0]
    file = file_of(module)
    return f", from {file}" if file else f" (no module {module} on sys.path; the current folder is not searched for it)"


def _digest(part: Unloaded) -> str:
    kinds = (vars(kind)["registry"].kind for kind in type(part).__mro__ if "registry" in vars(kind))
    kind = next(kinds, "class")
    return hashlib.sha256(json.dumps([kind, to_json(part)], sort_keys=True).encode()).hexdigest()


def _file(digest: str, how: str) -> Path:
    try:
        return record_folder() / f"{how}-{digest}.json"
    except RuntimeError:  # the home folder is unknown
        return Path(os.devnull, "none")


def _write(file: Path, text: str) -> None:
    """Creates a file, readable by its owner alone, as a whole or not at all; an existing one stays."""
    if file.exists():
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)
    temporary.replace(file)
