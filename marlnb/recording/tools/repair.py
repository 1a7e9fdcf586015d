"""repair: restores as much as possible of an interrupted or damaged recording, and reports what it found.

It works on a copy: everything intact is copied into a new file, which replaces the old one at the end. Rows whose
checksum differs are dropped. A file that was never closed has no checksums, so repair also checks what a recording
implies: its rows are inside the file, t counts up within an episode, episodes are where the table says, flags are 0 or
1, and an episode's rewards add up to its return. Without checksums, damage that looks like valid data is not detected.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from marlnb.disk import PROBLEMS, errno_of, free_bytes, left_behind, mount_point, temporary_of, writing
from marlnb.display.formatting import count, format_bytes
from marlnb.errors import RecordingError, RecordingWriteError
from marlnb.paths import expanded
from marlnb.recording.file.inspection import check_ordinary, remember
from marlnb.recording.file.journal import complete_commit, is_being_written, journal_of
from marlnb.recording.file.layout import row_paths
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.segments import rejoin, segments_folder
from marlnb.recording.tools.copying import Portion, copy_episodes, new_recording
from marlnb.recording.tools.damage import Damage, examine

MAX_LISTED_EPISODES = 8
COPIED_BYTES = 16 * 1024 * 1024  # at a time


@dataclass(frozen=True)
class Repair:
    """What `repair` found and did.

    Attributes:
        path: the file.
        changed: whether it was rewritten.
        rows: that it holds now.
        episodes: that it holds now.
        finished: finished episodes that it holds now.
        lost_rows: rows that were in the file and are no longer.
        lost_episodes: numbers of the episodes that are lost.
        problems: what was wrong; empty where nothing was.
        complete: whether it holds everything that was to be recorded.
        backup: the original file, if it was to be kept.
    """

    path: Path
    changed: bool
    rows: int
    episodes: int
    finished: int
    lost_rows: int
    lost_episodes: tuple[int, ...]
    problems: tuple[str, ...]
    complete: bool
    backup: Path | None = None

    def __str__(self) -> str:
        state = "complete" if self.complete else "incomplete"
        size = f"{count(self.rows, 'row')}, {count(self.episodes, 'episode')} ({self.finished:,} finished)"
        lines = [f"{self.path}: {size}, {state}"]
        lines += [f"  {problem}" for problem in self.problems or ("no damage found",)]
        if self.lost_rows:
            listed = ", ".join(map(str, self.lost_episodes[:MAX_LISTED_EPISODES])) or "none"
            n_more = len(self.lost_episodes) - MAX_LISTED_EPISODES
            more = f" and {n_more} more" if n_more > 0 else ""
            lines.append(f"  lost: {count(self.lost_rows, 'row')}, episodes {listed}{more}")
        if self.backup is not None:
            lines.append(f"  the original file is kept as {self.backup}")
        return "\n".join(lines)


def repair(path: str | os.PathLike[str], *, keep: bool = False) -> Repair:
    """Repairs a recording in place. An intact one is left unchanged.

    A commit that a kill interrupted is completed. Incomplete episodes are dropped, except the last one, which a kill
    interrupted; it is marked unfinished. Datasets of unequal length are cut to the shortest. A wrong table of episodes
    is rebuilt. A recording in segments is repaired segment by segment and joined again.

    Args:
        keep: keep the original as `<name>.h5.bak`.
    Raises:
        RecordingError: the file is no recording, is being written, is too damaged to find its rows, or the disk refuses
            a write. It is unchanged.
    """
    target = expanded(path)
    with writing(target, kind=RecordingWriteError, saved="it is unchanged"):
        is_joined = any(segments_folder(target).glob("*.h5"))
        if not target.exists() and not is_joined:
            raise RecordingError(f"there is no recording {target}")
        if is_joined:
            return _repair_segments(target, keep)
        check_ordinary(target)
        return _repair_file(target, keep)


def _repair_file(target: Path, keep: bool) -> Repair:
    with open(target, "r+b"):
        pass  # the disk is not read-only, and this user may write
    if is_being_written(target):
        raise RecordingError(f"{target} is being written; repair it when its writer has finished")
    journal = journal_of(target)
    was_interrupted = journal.exists() and journal.stat().st_size > 0
    complete_commit(target, locking=None)
    with _working_copy(target) as copy:
        damage = examine(copy, target)
        remember(copy)  # examined, and changed so that it opens
        if was_interrupted:
            damage.problems.insert(0, "a write had been interrupted; it has been completed")
        if not damage.must_rewrite:
            try:
                return _report(target, damage, changed=False)
            except RecordingError as error:
                damage.add(str(error))
        try:
            backup = _rewrite(target, copy, damage, keep)
        except Exception as error:  # whatever HDF5 and the contents of a damaged file raise
            what = str(error).replace(str(copy), str(target)) or type(error).__name__
            if errno_of(error) not in PROBLEMS:
                what = f"{target} cannot be repaired: {what}"
            elif not isinstance(error, RecordingError):
                raise
            raise RecordingError(f"{what}; it is unchanged") from error
    return _report(target, damage, changed=True, backup=backup)


def _rewrite(target: Path, copy: Path, damage: Damage, keep: bool) -> Path | None:
    """Replaces `target` by the intact episodes of `copy`; returns the backup."""
    backup = target.with_name(f"{target.name}.bak") if keep else None
    if backup is not None and backup.exists() and not backup.samefile(target):  # the same after a kill
        raise RecordingError(f"{backup} already exists; move it away, or repair with keep=False")
    with Recording.open(copy) as source:
        intact = [int(number) for number in source.episodes.index if number not in damage.lost_episodes]
        if not intact:
            raise RecordingError("none of its episodes is intact")
        portion = Portion(row_paths(source.file), episodes=intact)
        complete = source.complete and not damage.lost_episodes
        attributes, n_rows = {"repaired": "; ".join(damage.problems)}, len(source)
        with new_recording(
            target, source, portion, attributes=attributes, expected_rows=n_rows, complete=complete, replace=True
        ) as writer:
            copy_episodes(source, writer, portion)
            if backup is not None and not backup.exists():
                os.link(target, backup)
    remember(target)
    return backup


def _repair_segments(target: Path, keep: bool) -> Repair:
    paths = sorted(segments_folder(target).glob("*.h5"))
    repairs, dropped = [], []
    for segment in paths:
        try:
            repairs.append(_repair_file(segment, keep))
        except RecordingError as error:
            dropped.append(f"{segment.name} cannot be repaired and was renamed to {segment.name}.damaged: {error}")
            segment.rename(segment.with_name(f"{segment.name}.damaged"))
    if not repairs:
        raise RecordingError(f"{target}: none of its {len(paths)} segments can be repaired: {'; '.join(dropped)}")
    problems = [f"{item.path.name}: {problem}" for item in repairs for problem in item.problems] + dropped
    if not problems:
        try:
            return _report(target, Damage(), changed=False)
        except RecordingError as error:
            problems.append(f"the joined file was damaged and was made again: {error}")
    rejoin(target)
    damage = Damage(
        problems=problems,
        lost_episodes={number for item in repairs for number in item.lost_episodes},
        lost_rows=sum(item.lost_rows for item in repairs),
    )
    return _report(target, damage, changed=True)


def _report(target: Path, damage: Damage, *, changed: bool, backup: Path | None = None) -> Repair:
    with Recording.open(target) as recording:
        episodes = recording.episodes
        return Repair(
            path=target,
            changed=changed,
            rows=len(recording),
            episodes=len(episodes),
            finished=int(episodes["finished"].sum()),
            lost_rows=damage.lost_rows,
            lost_episodes=tuple(sorted(damage.lost_episodes)),
            problems=tuple(damage.problems),
            complete=recording.complete,
            backup=backup,
        )


@contextmanager
def _working_copy(target: Path) -> Iterator[Path]:
    for left in left_behind(target, "repairing"):
        journal_of(left).unlink(missing_ok=True)
        left.unlink(missing_ok=True)
    copy = temporary_of(target, "repairing")
    try:
        _copy_without_holes(target, copy)
        yield copy
    finally:
        copy.unlink(missing_ok=True)
        journal_of(copy).unlink(missing_ok=True)


def _copy_without_holes(source: Path, copy: Path) -> None:
    """Copies what the disk holds of a file: its size alone, which may be a terabyte, takes neither space nor time.

    Raises:
        RecordingError: the disk has no room for a copy.
    """
    needed, free = source.stat().st_blocks * 512, free_bytes(source)
    if needed > free:
        raise RecordingError(
            f"{source} cannot be repaired: its copy needs {format_bytes(needed)}, and the disk {mount_point(source)} "
            f"has {format_bytes(free)} free; it is unchanged"
        )
    refused = writing(source, kind=RecordingWriteError, saved="it is unchanged", needed_bytes=needed)
    with refused, open(source, "rb") as old, open(copy, "wb") as new:
        size = old.seek(0, os.SEEK_END)
        new.truncate(size)
        stop = 0
        while stop < size:
            try:
                start = os.lseek(old.fileno(), stop, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # a hole up to the end
                    return
                raise
            stop = os.lseek(old.fileno(), start, os.SEEK_HOLE)
            old.seek(start), new.seek(start)
            while block := old.read(min(stop - old.tell(), COPIED_BYTES)):
                new.write(block)
