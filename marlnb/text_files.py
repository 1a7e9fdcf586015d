"""Reads files from untrusted sources: ordinary files of a bounded size, and YAML that cannot expand without end."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from marlnb.errors import ConfigError

MAX_TEXT_BYTES = 256 * 1024 * 1024
NO_LINK = "links in such folders are not followed (`cp -rL` copies a folder with what its links lead to)"
MAX_YAML_BYTES = 1024 * 1024
MAX_YAML_NODES = 10_000  # with each alias counted as what it stands for; OmegaConf takes 0.5 ms for each


def read_bytes(path: Path, *, max_bytes: int = MAX_TEXT_BYTES, offset: int = 0, follow: bool = True) -> bytes:
    """The content of a file from `offset` on.

    Raises:
        OSError: as `open_ordinary`, or it has more than `max_bytes` or than the memory holds.
    """
    with open_ordinary(path, follow=follow) as file:
        status = os.fstat(file.fileno())
        if status.st_size - offset > max_bytes:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes; at most {max_bytes:,} are read", str(path))
        file.seek(offset)
        try:
            return file.read(max(0, status.st_size - offset))
        except MemoryError:
            problem = f"it has {status.st_size - offset:,} bytes, for which this process has no memory"
            raise OSError(errno.ENOMEM, problem, str(path)) from None


def open_ordinary(path: Path, *, follow: bool = True) -> BinaryIO:
    """A file to read from. It never waits, as a pipe would make it.

    Args:
        follow: False: of a folder from anyone, which must not make marlnb read other files; it may not be a link.
    Raises:
        OSError: it is a pipe, a device, a folder or a link that is not followed, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno == errno.ELOOP and not follow and path.is_symlink():
            raise OSError(errno.ELOOP, f"it is a link to {os.readlink(path)}; {NO_LINK}", str(path)) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise OSError(errno.EINVAL, f"it is {kind}; expected an ordinary file", str(path))
    return os.fdopen(descriptor, "rb")


def read_text(path: Path, *, max_bytes: int = MAX_TEXT_BYTES, errors: str = "strict", follow: bool = True) -> str:
    """A file of UTF-8. Raises OSError as `read_bytes`, and UnicodeDecodeError unless `errors` says otherwise."""
    return io.TextIOWrapper(io.BytesIO(read_bytes(path, max_bytes=max_bytes, follow=follow)), "utf-8", errors).read()


def read_yaml(path: Path, loader: Any = None) -> Any:
    """The content of a YAML file.

    Args:
        loader: of PyYAML; None: the one that makes plain data and nothing else.
    Raises:
        ConfigError: it cannot be read, is no YAML, or refers to itself so often that it would fill the memory.
    """
    import yaml

    try:
        return yaml.load(yaml_text(path), loader or yaml.SafeLoader)
    except ConfigError:
        raise
    except Exception as error:  # a YAML error, or whatever a date, a number or a nesting makes Python raise
        raise ConfigError(f"{path} cannot be read as YAML: {error_words(error)}") from error


def yaml_text(path: Path) -> str:
    """The text of a YAML file that is safe to parse. Raises ConfigError as `read_yaml`."""
    try:
        text = read_text(path, max_bytes=MAX_YAML_BYTES)
        n_nodes = _n_nodes(text)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist") from None
    except Exception as error:  # as above
        raise ConfigError(f"{path} cannot be read as YAML: {error_words(error)}") from error
    if n_nodes > MAX_YAML_NODES:
        each = ", with each alias counted as what it stands for" if "&" in text else ""
        raise ConfigError(f"{path} cannot be read: it has more than {MAX_YAML_NODES:,} values{each}")
    return text


def _n_nodes(text: str) -> int:
    """How many values a YAML text has, if each alias is replaced by what it stands for; at most one too many."""
    import yaml

    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if total > MAX_YAML_NODES:
            break
        if isinstance(event, yaml.CollectionStartEvent):
            total += 1
            open_nodes.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, first = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = total - first + 1
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise ValueError(f"the alias *{event.anchor} is inside the value that it refers to")
            total += sizes.get(event.anchor, 0)
    return total


def error_words(error: Exception) -> str:
    """An error in words; YAML's own say where it is."""
    if isinstance(error, RecursionError):
        return "its values are nested too deeply"
    return str(getattr(error, "strerror", None) or error)[:500]
