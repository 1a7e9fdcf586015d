"""The exception tree: every error a user can cause says what was asked, what was found and what is valid."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MarlnbError(Exception):
    """The root of every error that marlnb raises on purpose."""


class ConfigError(MarlnbError):
    """An option, a value or a combination of them that cannot be run.

    Attributes:
        at: the path of the option that it is about, as "algorithm.lr"; empty where it is about none, or several.
    """

    def __init__(self, *args: object, at: str = "") -> None:
        super().__init__(*args)
        self.at = at


class UnknownNameError(ConfigError, KeyError):
    """A name that is in no registry."""

    __str__ = Exception.__str__  # KeyError would print the message's repr


class EnvError(MarlnbError):
    """An environment that cannot be built, stepped or closed."""


class EnvBuildError(ConfigError, EnvError):
    """An environment that cannot be had as it was asked for; nothing was started."""


class ShapeError(MarlnbError):
    """A tensor whose axes are not those that were asked for."""


class SiteError(MarlnbError):
    """A site that a policy does not have, or that never fired."""


class RunError(MarlnbError):
    """A run folder that is missing, incomplete or already there."""


class CheckpointError(RunError):
    """A checkpoint that is missing, damaged or of another experiment."""


class RecordingError(MarlnbError):
    """A recording that cannot be planned, written or read."""


class AnalysisError(MarlnbError):
    """A question that a recording or a policy cannot answer."""


class BatchError(MarlnbError):
    """A batch of notebooks that cannot be planned, started, found or asked."""


class StoppedError(MarlnbError):
    """A training within a batch job that was asked to stop: what was learnt is saved, and the job goes on later.

    It ends the notebook in the cell that trains, so that no later cell works with a training that is not done.
    """


class AllocationEndsError(StoppedError):
    """A training within a batch job that saved and stopped because the job's time is nearly over: run it again."""


def kind_of(error: BaseException) -> type[MarlnbError] | None:
    """The class of this module that an error is of, as which it can be raised again with another text; else None."""
    return next((kind for kind in type(error).__mro__ if kind.__module__ == __name__), None)


def nearest(asked: str, valid: Iterable[str], *, most: int = 3) -> list[str]:
    """The valid names that look most like `asked`, best first."""
    names = sorted(set(valid))
    by_tail = [name for name in names if asked and asked == name.rsplit("/", 1)[-1]]
    close = difflib.get_close_matches(asked, names, n=most, cutoff=0.5)
    return list(dict.fromkeys([*by_tail, *close]))[:most]


def unknown(kind: str, asked: str, valid: Iterable[str]) -> str:
    """A message for a name that is not among the valid ones: the request, the nearest, all of them.

    Of many, those of the asked name's family come first, as all of `pettingzoo/...`.
    """
    family = asked.rpartition("/")[0]
    names = sorted(set(valid), key=lambda name: (name.rpartition("/")[0] != family, name))
    close = nearest(asked, names)
    hint = f"; did you mean {' or '.join(repr(name) for name in close)}?" if close else "."
    listed = ", ".join(names[:40]) + (f", and {len(names) - 40} more" if len(names) > 40 else "")
    return f"no {kind} {asked!r}{hint} Valid: {listed or '(none)'}"
