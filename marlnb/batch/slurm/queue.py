"""What `squeue`, `sacct` and `scontrol` tell of jobs, read into what marlnb knows of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marlnb.batch.executor import Known, Whereabouts
from marlnb.batch.slurm.commands import call

SQUEUE_FORMAT = "%i|%T|%N|%r"
SACCT_FORMAT = "JobID,State,NodeList,Reason,ExitCode"
# every other state means that the job has ended and does not run again by itself
QUEUED = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT", "CONFIGURING")
RUNNING = ("RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT")
# what squeue tells of an ended job beside its state; other words are left over from when it waited
_TELLING = ("JobLaunchFailure", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS")
# what waits for these never begins by itself
_PLAIN_WORDS = {
    "JobHeldUser": "held: `scontrol release` lets it go on (JobHeldUser)",
    "JobHeldAdmin": "held by an administrator (JobHeldAdmin)",
    "PartitionTimeLimit": "the partition allows less time than time_limit (PartitionTimeLimit)",
    "PartitionConfig": "no node of the partition has what it asks for (PartitionConfig)",
}
_IDS = re.compile(r"(\d+)_\[([\d,\-:]+)(?:%\d+)?\]")


@dataclass(frozen=True)
class Site:
    """What a cluster's configuration says.

    Attributes:
        largest_array: tasks that one array may have.
        accounting: whether there is a database, so that `sacct` answers.
    """

    largest_array: int
    accounting: bool


def read_site(text: str) -> Site:
    """From what `scontrol show config` prints."""
    found = dict(re.findall(r"^(\w+)\s*= (.*)$", text, re.MULTILINE))
    largest = int(found.get("MaxArraySize", "1001"))
    most = re.search(r"\bmax_array_tasks=(\d+)", found.get("SchedulerParameters", ""))
    accounting = found.get("AccountingStorageType", "accounting_storage/none").strip()
    return Site(min(largest, int(most[1])) if most else largest, not accounting.endswith("/none"))


def ask_site() -> Site:
    """Raises BatchError when SLURM does not answer."""
    return read_site(call("scontrol", "show", "config"))


def ask_queue(cluster: str) -> dict[str, Known]:
    """Each job of this user that the controller remembers (some minutes after its end), by id, as `17_3`: one call."""
    # not --jobs: an id that is forgotten already would make it an error
    words = ["--array", "--noheader", "--states=all", f"--user={os.getuid()}", f"--format={SQUEUE_FORMAT}"]
    return read_squeue(call("squeue", *_of(cluster), *words))


def ask_accounting(cluster: str, arrays: Sequence[int]) -> dict[str, Known]:
    """Each task of the arrays, however long ago it ended, by id: one call."""
    ids = ",".join(map(str, sorted(set(arrays))))
    words = ["--allocations", "--parsable2", "--noheader", f"--format={SACCT_FORMAT}", f"--jobs={ids}"]
    return read_sacct(call("sacct", *_of(cluster), *words))


def cancel_tasks(cluster: str, ids: Sequence[str]) -> None:
    """Ends tasks in one call; those that have ended already are no error."""
    call("scancel", "--quiet", *_of(cluster), *ids)


def read_squeue(text: str) -> dict[str, Known]:
    """Lines of SQUEUE_FORMAT, one a task."""
    rows = (line.split("|", 3) for line in text.splitlines() if line.count("|") >= 3)
    return {id: _known(id, state, node, reason.strip("() ")) for id, state, node, reason in rows}


def read_sacct(text: str) -> dict[str, Known]:
    """Lines of SACCT_FORMAT. Tasks that have not begun share one, `17_[3-9%4]`, which tasks of their own go before."""
    together: dict[str, Known] = {}
    single: dict[str, Known] = {}
    for line in text.splitlines():
        if line.count("|") < 4:
            continue
        ids, state, node, reason, code = line.split("|")[:5]
        for id in expand(ids):
            told = _known(id, state, "" if node == "None assigned" else node, reason, code)
            (single if id == ids else together)[id] = told
    return {**together, **single}


def expand(ids: str) -> Iterator[str]:
    """`17_[0-2,7%4]` -> 17_0, 17_1, 17_2, 17_7; `17_3` -> itself."""
    found = _IDS.fullmatch(ids)
    if found is None:
        yield ids
        return
    for part in found[2].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        for index in range(int(first), int(last or first) + 1, int(step or 1)):
            yield f"{found[1]}_{index}"


def _known(id: str, told: str, node: str, reason: str, code: str = "") -> Known:
    state = told.split(" ")[0].rstrip("+")
    whereabouts: Whereabouts = "queued" if state in QUEUED else "running" if state in RUNNING else "ended"
    reason = "" if reason == "None" else _PLAIN_WORDS.get(reason, reason)
    if whereabouts == "queued":
        words = reason if state == "PENDING" else ": ".join(filter(None, (state, reason)))
    elif whereabouts == "running":
        words = "" if state == "RUNNING" else state
    else:
        if told == "CANCELLED" and reason == "Dependency":  # by SLURM, and sacct's word for it
            reason = "DependencyNeverSatisfied"
        words = _ending(told, reason if reason in _TELLING else "", code)
    return Known(whereabouts, words, id, node)


def _ending(told: str, reason: str, code: str) -> str:
    """`FAILED, exit code 1`, `FAILED, signal 9`, `CANCELLED by 1000`, `TIMEOUT`; empty for what completed."""
    status, _, number = code.partition(":")
    how = f"signal {number}" if number not in ("", "0") else f"exit code {status}" if status not in ("", "0") else ""
    return "" if told == "COMPLETED" else ", ".join(filter(None, (told, reason, how)))


def _of(cluster: str) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []
