"""repair: makes the best of a recording that was interrupted or damaged, and says what it found.

Works on a copy: whatever is whole is copied into a new file, which takes the place of the old one at the end. HDF5
keeps no checksums of its data, so what is checked is what a recording knows of itself: that its rows lie inside the
file, that t counts up within an episode, that episodes lie where the table says, that flags are 0 or 1 and the rewards
of an episode add up to its return. Garbage that passes for what was recorded cannot be told.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py

from marlnb.errors import RecordingError
from marlnb.recording.file.journal import complete_commit, journal_of
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.segments import rejoin, segments_folder
from marlnb.recording.tools.copying import Portion, all_paths, copy_episodes, new_recording
from marlnb.recording.tools.damage import Findings, examine


@dataclass(frozen=True)
class Repair:
    """What repair found and did.

    Attributes:
        path: the file; changed: whether it was written anew.
        rows, episodes, finished: what it holds now.
        lost_rows: what was in the file and is no longer; lost_episodes: their numbers.
        found: what was wrong, in words; empty where nothing was.
        complete: whether it holds everything that was asked for when it was recorded.
        kept: where the original is, if that was asked for.
    """

    path: Path
    changed: bool
    rows: int
    episodes: int
    finished: int
    lost_rows: int
    lost_episodes: tuple[int, ...]
    found: tuple[str, ...]
    complete: bool
    kept: Path | None = None

    def __str__(self) -> str:
        told = "complete" if self.complete else "incomplete"
        lines = [f"{self.path}: {self.rows:,} rows, {self.episodes:,} episodes ({self.finished:,} finished), {told}"]
        lines += [f"  {what}" for what in self.found or ("nothing is wrong",)]
        if self.lost_rows:
            lines.append(f"  lost: {self.lost_rows:,} rows, episodes {_few(self.lost_episodes)}")
        if self.kept is not None:
            lines.append(f"  the original is {self.kept}")
        return "\n".join(lines)


def repair(path: str | os.PathLike[str], *, keep: bool = False) -> Repair:
    """Mends a recording in its place; one in which nothing is wrong is left as it is.

    A commit that a kill cut short is completed; episodes that are not whole on disk are left out, except that one which
    a kill broke off stays, marked unfinished; datasets of unequal length are cut to the shortest; the table of episodes
    is rebuilt where it lies. A recording in segments is mended segment by segment and joined again.

    Args:
        keep: keep the original as `<name>.h5.bak`.
    Raises:
        RecordingError: it is no recording, is being written, or so damaged that no rows can be told: it is untouched.
    """
    target = Path(path).expanduser()
    if not target.exists():
        raise RecordingError(f"there is no recording {target}")
    if segments_folder(target).is_dir():
        return _repair_segments(target, keep)
    return _repair_file(target, keep)


def _repair_file(target: Path, keep: bool) -> Repair:
    if os.access(target, os.W_OK):
        _check_not_written(target)
        interrupted = _journal_holds_something(target)
        complete_commit(target, locking=None)
    else:
        raise RecordingError(f"{target} cannot be written")
    with _working_copy(target) as copy:
        findings = examine(copy, target)
        if interrupted:
            findings.found.insert(0, "a write had been cut short; it has been completed")
        if not findings.must_copy:
            with Recording.open(target) as recording:
                return _told(target, recording, findings, changed=False)
        kept = _rewrite(target, copy, findings, keep)
    with Recording.open(target) as recording:
        return _told(target, recording, findings, changed=True, kept=kept)


def _rewrite(target: Path, copy: Path, findings: Findings, keep: bool) -> Path | None:
    mended = target.with_name(f".{target.name}.mended-{os.getpid()}")
    mended.unlink(missing_ok=True)
    try:
        with Recording.open(copy) as source:
            whole = [int(number) for number in source.episodes.index if number not in findings.lost_episodes]
            if not whole:
                raise RecordingError(f"{target}: no episode of it is whole; it is left as it is")
            portion = Portion(all_paths(source), episodes=whole)
            complete = source.complete and not findings.lost_episodes
            attributes = {"repaired": "; ".join(findings.found)}
            rows = len(source)
            with new_recording(
                mended, source, portion, attributes=attributes, expected_rows=rows, complete=complete
            ) as writer:
                copy_episodes(source, writer, portion)
        kept = None
        if keep:
            kept = target.with_name(f"{target.name}.bak")
            if kept.exists():
                raise RecordingError(f"{kept} is there already; move it away, or repair with keep=False")
            os.link(target, kept)
        shutil.copymode(target, mended)
        os.replace(mended, target)
        return kept
    finally:
        mended.unlink(missing_ok=True)


def _repair_segments(target: Path, keep: bool) -> Repair:
    paths = sorted(segments_folder(target).glob("*.h5"))
    done, dropped = [], []
    for segment in paths:
        try:
            done.append(_repair_file(segment, keep))
        except RecordingError as error:
            dropped.append(f"{segment.name} cannot be mended and was set aside as {segment.name}.damaged: {error}")
            segment.rename(segment.with_name(f"{segment.name}.damaged"))
    if not done:
        raise RecordingError(f"{target}: none of its {len(paths)} segments can be mended: {'; '.join(dropped)}")
    found = [f"{each.path.name}: {what}" for each in done for what in each.found] + dropped
    if not found:
        with Recording.open(target) as recording:
            return _told(target, recording, Findings(), changed=False)
    rejoin(target)
    lost = Findings(
        found=found,
        lost_episodes={number for each in done for number in each.lost_episodes},
        lost_rows=sum(each.lost_rows for each in done),
    )
    with Recording.open(target) as recording:
        return _told(target, recording, lost, changed=True)


def _told(target: Path, recording: Recording, findings: Findings, *, changed: bool, kept: Path | None = None) -> Repair:
    episodes = recording.episodes
    return Repair(
        path=target,
        changed=changed,
        rows=len(recording),
        episodes=len(episodes),
        finished=int(episodes["finished"].sum()),
        lost_rows=findings.lost_rows,
        lost_episodes=tuple(sorted(findings.lost_episodes)),
        found=tuple(findings.found),
        complete=recording.complete,
        kept=kept,
    )


@contextmanager
def _working_copy(target: Path) -> Iterator[Path]:
    copy = target.with_name(f".{target.name}.repairing-{os.getpid()}")
    try:
        shutil.copyfile(target, copy)
        yield copy
    finally:
        copy.unlink(missing_ok=True)
        journal_of(copy).unlink(missing_ok=True)


def _check_not_written(target: Path) -> None:
    try:
        h5py.File(target, "r").close()
    except BlockingIOError as error:
        raise RecordingError(f"{target} is being written; repair it when its writer has gone") from error
    except OSError:  # damaged: that is what repair is for
        pass


def _journal_holds_something(target: Path) -> bool:
    journal = journal_of(target)
    return journal.exists() and journal.stat().st_size > 0


def _few(numbers: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "") if numbers else "none"
