"""The exception tree. Every error that a user can cause says what was requested, found and valid, and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import ClassVar

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")  # ECMA-48, section 8.3.117
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class MarlnbError(Exception):
    """The root of every error that marlnb raises on purpose.

    A message that became too long, as by a value that it shows, keeps its first and last characters. Names in it cannot
    control a terminal.
    """

    max_message: ClassVar[int] = 4_000

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(bounded(a, self.max_message)) if isinstance(a, str) else a for a in args))


class ConfigError(MarlnbError):
    """An option, a value, or a combination of options is invalid.

    Attributes:
        at: the path of the option, such as "algorithm.lr"; empty if the error is about no option or several.
    """

    def __init__(self, *args: object, at: str = "") -> None:
        super().__init__(*args)
        self.at = at


class UnknownNameError(ConfigError, KeyError):
    """A name is not registered."""

    __str__ = Exception.__str__  # KeyError would print the message's repr


class EnvError(MarlnbError):
    """An environment cannot be built, stepped, rendered or closed."""


class EnvBuildError(ConfigError, EnvError):
    """An environment cannot be built with the requested options; nothing was started."""


class ShapeError(MarlnbError):
    """A tensor does not have the expected axes."""


class SiteError(MarlnbError):
    """A policy has no such site, or the site was never used."""


class RunError(MarlnbError):
    """A run folder is missing or incomplete, or exists already."""


class TrustError(RunError):
    """A run folder names code to import that the user does not trust; nothing of it was run."""

    max_message = 100_000  # a long list must not hide a part of what would run


class CheckpointError(RunError):
    """A checkpoint is missing or damaged, or belongs to another experiment."""


class CheckpointWriteError(CheckpointError):
    """A training run cannot save a checkpoint; earlier ones are complete."""


class DiskError(MarlnbError, OSError):
    """A file cannot be written: its disk is full, read-only or broken, or a quota is used up.

    Attributes:
        errno: the system's number of the error.
        problem: what is wrong with the disk, such as "the disk /data is full: 0 B free, 3 MB needed".
    """

    problem = ""


class RecordingError(MarlnbError):
    """A recording cannot be planned, written or read."""


class RecordingWriteError(RecordingError):
    """A disk refuses to write a recording; what was written before is whole."""


class AnalysisError(MarlnbError):
    """An analysis cannot be computed from a recording or a policy."""


class NoExactValueError(AnalysisError):
    """A player has no exact exploitability, as one with memory, or in a game whose states are not listed."""


class BatchError(MarlnbError):
    """A batch of notebooks cannot be planned, started, found or queried."""


class StoppedError(MarlnbError):
    """A training run in a batch job was asked to stop: it is saved, and the job resumes later.

    It ends the notebook in the cell that trains, so that no later cell uses an unfinished training.
    """


class AllocationEndsError(StoppedError):
    """A training run in a batch job saved and stopped because the job's time is nearly over; run it again to resume."""


def kind_of(error: BaseException) -> type[MarlnbError] | None:
    """The most specific class of this module that `error` is an instance of, to raise it again with another message."""
    return next((kind for kind in type(error).__mro__ if kind.__module__ == __name__), None)


def printable(text: str) -> str:
    """A text that cannot control a terminal or change the direction of writing; lines and tabs are kept.

    Colours are removed. Other control characters are replaced, so that names that differ in them look different from
    names without.
    """
    if text.isprintable():
        return text
    kept = (c if c.isprintable() or c in "\n\t" else REPLACEMENT for c in _COLOUR.sub("", text))
    return "".join(kept)


def bounded(text: str, max_length: int) -> str:
    """A text without its middle if it is too long: the last quarter is kept, since a traceback's end says the most."""
    if len(text) <= max_length:
        return text
    end = max_length // 4
    start = max_length - end - 50
    return f"{text[:start]} … [{len(text) - start - end:,} characters left out] … {text[-end:]}"


def shown(value: object, max_length: int = 200) -> str:
    """`repr(value)` for a message, shortened if it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits; values nested too deeply
        return f"a very large {type(value).__name__}"
    return text if len(text) <= max_length else f"{text[:max_length]}…"


def nearest(requested: str, valid: Iterable[str], *, n: int = 3) -> list[str]:
    """The valid names most similar to `requested`, best first."""
    names, requested = sorted(set(valid)), requested[:200]
    by_tail = [name for name in names if requested and requested == name.rsplit("/", 1)[-1]]
    close = difflib.get_close_matches(requested, names, n=n, cutoff=0.5)
    return list(dict.fromkeys([*by_tail, *close]))[:n]


def unknown(kind: str, requested: object, valid: Iterable[str]) -> str:
    """A message about a name that is not valid: the request, the most similar names, and the valid ones.

    If there are many, names of the same family come first, as all of `pettingzoo/...`.

    Args:
        kind: of thing, and whose it is after "of", "in" or "at": "option of algorithm 'ippo'".
        requested: the name, or what was given in its place, such as an index.
    """
    text = requested if isinstance(requested, str) else ""
    family = text.rpartition("/")[0]
    names = sorted(set(valid), key=lambda each: (each.rpartition("/")[0] != family, each))
    close = nearest(text, names)
    hint = f"; did you mean {' or '.join(repr(name) for name in close)}?" if close else "."
    listed = ", ".join(names[:40]) + (f", and {len(names) - 40} more" if len(names) > 40 else "")
    thing, *owner = re.split(r"(?= of | in | at )", kind, maxsplit=1)
    return f"no {thing} {shown(requested)}{''.join(owner)}{hint} Valid: {listed or '(none)'}"
