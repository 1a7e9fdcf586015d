"""Verdict: what is wrong with the overrides of one experiment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """What is wrong with one list of overrides.

    Attributes:
        error: why no Experiment accepts them; empty if one does.
        unused: overrides that have no effect, with the reason.
        doubtful: whether the error may come from the check itself, as for a module of the user that cannot be imported here.
    """

    error: str = ""
    unused: tuple[str, ...] = ()
    doubtful: bool = False
