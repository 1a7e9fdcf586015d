"""Executor: the interface between a batch and the place where its jobs run, a laptop or a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from marlnb.errors import BatchError, MarlnbError
from marlnb.plugins.registry import Registry

if TYPE_CHECKING:
    from marlnb.batch.batch import Batch
    from marlnb.batch.job.job import Job, JobInfo
    from marlnb.batch.profile import Profile


class NoSchedulerError(BatchError):
    """This machine has no scheduler that could take the jobs; a dry run can still show what would be submitted."""


class Executor(ABC):
    """Starts jobs, reports their state and ends them. It passes on only the paths of the jobs' folders.

    Callers wait by reading the jobs' files, so an executor does not need its caller after `submit` has returned. Every
    method may be called in another process than the one that submitted; an executor therefore stores what it has to
    remember in the batch's folder. A subclass with `@executor("name")` can be used as `executor: name` in profiles.

    Attributes:
        name: the name under which the class is registered.
        query_interval_s: a monitor calls `query` at most once in this time.
        grace_s: a job is restarted only if its files and the executor agree for this long that it is gone, since
            shared file systems show what happened on a node with a delay.
        unsupported: keys of a profile that mean nothing to it; forms do not offer them, and `check` refuses them.
        profile: the resources of each job.
    """

    name: ClassVar[str]
    query_interval_s: ClassVar[float] = 10.0
    grace_s: ClassVar[float] = 30.0
    unsupported: ClassVar[tuple[str, ...]] = ()

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    @abstractmethod
    def check(self) -> None:
        """Checks that this machine can run jobs of this profile.

        Raises:
            NoSchedulerError: it has no scheduler of this kind.
            BatchError: it cannot, since it has not as many cores, for instance.
        """

    @abstractmethod
    def preview(self, batch: Batch, jobs: Sequence[Job], *, then: bool) -> str:
        """What `submit` would do, for `--dry-run`: the script or the commands. Nothing is written or started."""

    @abstractmethod
    def submit(self, batch: Batch, jobs: Sequence[Job], *, then: bool, reason: str = "") -> str:
        """Starts jobs and returns at once, with the executor's id of the submission.

        Args:
            then: run the batch's report after all jobs are complete.
            reason: why the jobs are restarted, for the batch's log; empty the first time.
        Raises:
            BatchError: the scheduler refused; the message contains its own words.
        """

    @abstractmethod
    def query(self, batch: Batch) -> Mapping[str, JobInfo]:
        """The state of each job of the batch (and of `REPORT`) by name, with at most one call of a scheduler."""

    @classmethod
    def query_all(cls, batches: Sequence[Batch]) -> list[Mapping[str, JobInfo] | BatchError]:
        """As `query`, for several batches of this executor, in their order; an error for one with damaged files.

        An executor whose scheduler answers for several batches at once overrides it, and calls the scheduler once.
        """

        def query(batch: Batch) -> Mapping[str, JobInfo] | BatchError:
            try:
                return cls(batch.profile).query(batch)
            except Exception as error:  # a file may hold anything
                return unreadable(batch, error)

        return [query(batch) for batch in batches]

    @abstractmethod
    def cancel(self, batch: Batch, jobs: Sequence[Job]) -> None:
        """Ends jobs; those that run are asked to save first."""


def unreadable(batch: Batch, error: Exception) -> BatchError:
    """The error of a batch whose submissions cannot be read, since their files hold something unexpected."""
    reason = str(error) if isinstance(error, MarlnbError) else repr(error)
    return BatchError(f"a submission of {batch.path} cannot be read: {reason}")


EXECUTORS: Registry[type[Executor]] = Registry("executor", "marlnb.batch.executors")
executor = EXECUTORS.register


def executor_of(batch: Batch) -> Executor:
    """The executor that the batch's profile names.

    Raises:
        ConfigError: no executor has that name.
    """
    return EXECUTORS.get(batch.profile.executor)(batch.profile)
