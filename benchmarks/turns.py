"""Recorders that alternate within one rollout, and the CPU time of each turn."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from marlnb.envs.vector import Step
from marlnb.recording.capture.episode_recorder import EpisodeRecorder
from marlnb.recording.file.writer import RecordingWriter
from marlnb.training.collect.episodes import TimeStep


@dataclass(frozen=True)
class Turn:
    """CPU seconds per step of one turn: of all processes, and of the thread in the recorder's calls."""

    name: str
    process_s: float
    calls_s: float


def children() -> list[int]:
    """The processes that this one has started, which are an environment's workers."""
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def cpu_s(workers: list[int]) -> float:
    """CPU time of this process and its workers, each of one thread."""
    statistics = (Path(f"/proc/{pid}/schedstat").read_text() for pid in workers)
    return time.process_time() + sum(int(text.split()[0]) for text in statistics) * 1e-9


class Timed:
    """A recorder whose calls are timed; or none, which measures the cost of reading the clock.

    The clock is read at every step, also without a recorder.
    """

    def __init__(self, recorder: EpisodeRecorder | None) -> None:
        self.recorder, self.spent_ns, self.left_at = recorder, 0, time.monotonic()

    def before_step(self, time_step: TimeStep) -> None:
        start = time.thread_time_ns()
        if self.recorder is not None:
            self.recorder.before_step(time_step)
        self.spent_ns += time.thread_time_ns() - start

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        start = time.thread_time_ns()
        if self.recorder is not None:
            self.recorder.after_step(time_step, step, ended)
        self.spent_ns += time.thread_time_ns() - start

    def enter(self) -> None:
        """Starts its turn; writes to files, every few seconds, in the turns of others are not counted."""
        if self.recorder is not None and isinstance(self.recorder.writer, RecordingWriter):
            self.recorder.writer._flushed_at += time.monotonic() - self.left_at

    def leave(self) -> None:
        self.left_at = time.monotonic()

    def taken_ns(self) -> int:
        """The CPU time spent since the last call."""
        spent, self.spent_ns = self.spent_ns, 0
        return spent


class TakingTurns:
    """Calls the recorders in turns of `n_steps` steps, with a turn alone before each; all envs begin an episode."""

    def __init__(self, recorders: dict[str, EpisodeRecorder], n_steps: int) -> None:
        self.order: list[tuple[str, Timed]] = []
        for name, recorder in recorders.items():
            self.order += [("plain", Timed(None)), (name, Timed(recorder))]
        self.n_steps, self.turn, self.steps = n_steps, 0, 0
        self.callback = self.order[0][1]
        self.turns: list[Turn] = []
        self.workers = children()
        self.start_s = cpu_s(self.workers)

    def before_step(self, time_step: TimeStep) -> None:
        self.callback.before_step(time_step)

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        self.callback.after_step(time_step, step, ended)
        self.steps += 1
        if self.steps == self.n_steps:
            assert bool(step.done.all()), "envs whose episodes end at different times cannot take turns"
            now = cpu_s(self.workers)
            calls_s = self.callback.taken_ns() * 1e-9
            name = self.order[self.turn][0]
            self.turns.append(Turn(name, (now - self.start_s) / self.n_steps, calls_s / self.n_steps))
            self.callback.leave()
            self.steps, self.turn = 0, (self.turn + 1) % len(self.order)
            self.callback = self.order[self.turn][1]
            self.callback.enter()
            self.start_s = cpu_s(self.workers)
