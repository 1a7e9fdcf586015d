"""Executor: the one small interface over a laptop and a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from marlnb.registry import EXECUTORS, Registry

if TYPE_CHECKING:
    from marlnb.batch.batch import Batch
    from marlnb.batch.job.job import Job
    from marlnb.batch.profile import Profile

Whereabouts = Literal["queued", "running", "ended", "unknown"]


@dataclass(frozen=True)
class Known:
    """What an executor knows of a job, beside what the job's own files say.

    Attributes:
        state: queued (it will begin), running, ended (it will not run again by itself), unknown (never heard of).
        reason: in the executor's words: why it waits, or how it ended (`NODE_FAIL`, `OUT_OF_MEMORY`, `exit code 1`);
            what begins with `CANCELLED` was ended on purpose, and is not begun again.
        id: what the executor calls it, as `17_3`, or a process.
        node: where it runs.
    """

    state: Whereabouts
    reason: str = ""
    id: str = ""
    node: str = ""


class Executor(ABC):
    """Begins jobs, tells of them, and ends them. Nothing of a job passes through it but its folder's path.

    Whoever waits reads the jobs' files: an executor does not need its caller once `submit` has returned. Every method
    may be called in another process than the one that submitted; what it must remember lies in the batch's folder.
    """

    registry: ClassVar[Registry[type[Executor]]] = EXECUTORS
    name: ClassVar[str]
    ask_every_s: ClassVar[float] = 10.0
    """How often a watcher may call `known`, at most."""
    grace_s: ClassVar[float] = 30.0
    """How long a job's files and the executor must agree that it is gone before it is begun again: a shared file
    system tells what happened on a node with a delay."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    @abstractmethod
    def check(self) -> None:
        """Raises BatchError when this machine or this profile cannot do it (no sbatch, more cores than there are)."""

    @abstractmethod
    def preview(self, batch: Batch, jobs: Sequence[Job], *, then: bool) -> str:
        """What `submit` would do, for `--dry-run`: the script, or the processes. Nothing is written or begun."""

    @abstractmethod
    def submit(self, batch: Batch, jobs: Sequence[Job], *, then: bool, reason: str = "") -> str:
        """Begins jobs and returns at once with the executor's id of them; with `then` the report follows on success.

        Args:
            reason: why these are begun again, for the batch's log; empty the first time.
        Raises:
            BatchError: the scheduler refused; its own words are in the message.
        """

    @abstractmethod
    def known(self, batch: Batch) -> Mapping[str, Known]:
        """Of each job of the batch (and `REPORT`) by name; at most one call of a scheduler, whatever their number."""

    @abstractmethod
    def cancel(self, batch: Batch, jobs: Sequence[Job]) -> None:
        """Ends jobs; running ones are told first, so that they save."""
