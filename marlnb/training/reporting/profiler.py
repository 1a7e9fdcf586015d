"""Where a training's time goes: seconds of each phase, and a torch.profiler trace of a few iterations.

The phases are timed in every iteration, which costs microseconds. Single operators are traced in a few iterations after
a warm-up only, so a long training run stays as fast as without a profile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from marlnb.display.formatting import count, format_duration
from marlnb.training.runs.files import write_atomically

FOLDER = "profile"  # in the run's folder
TRACE = "trace.json.gz"
SUMMARY = "summary.txt"
N_SKIPPED = 2  # iterations before the trace: the first ones allocate memory and load kernels
N_TRACED = 3
N_OPERATORS = 15
VIEWERS = "https://ui.perfetto.dev or chrome://tracing"


class PhaseTimes:
    """Seconds of each phase of a training run, in this session.

    Attributes:
        seconds: by phase.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds the time of the block to a phase; a trace shows the block under the phase's name."""
        start = time.perf_counter()
        with record_function(phase):
            yield
        self.add(phase, time.perf_counter() - start)


class TrainingProfiler:
    """Writes `<run>/profile`: the trace, and the tables of phases and operators.

    Args:
        run: the run's folder.
        device: of the networks.

    Attributes:
        summary: the tables, once the training has ended; empty before.
    """

    def __init__(self, run: Path, device: str) -> None:
        self.summary = ""
        self._folder, self._has_gpu = run / FOLDER, torch.device(device).type == "cuda"
        self._operators: list[str] = []
        self._own_s = 0.0  # of the trace, which is not the training's
        self._profiler: profile | None = None

    def begin(self, iteration: int) -> None:
        """Called before the first iteration of a session, after `iteration` earlier ones."""
        self._folder.mkdir(exist_ok=True)
        self._start, self._first = time.perf_counter(), iteration + 1
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._has_gpu else [])]
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would write two lines to stderr
        plan = schedule(wait=N_SKIPPED - 1, warmup=1, active=N_TRACED, repeat=1)
        self._profiler = profile(activities=activities, schedule=plan, on_trace_ready=self._save_trace)
        self._profiler.start()

    def after_iteration(self, iteration: int, *, is_last: bool) -> None:
        self._last = iteration
        if self._profiler is not None and not is_last:
            start = time.perf_counter()
            self._profiler.step()
            if iteration - self._first + 1 >= N_SKIPPED + N_TRACED:
                self._stop()
            self._own_s += time.perf_counter() - start

    def end(self, iteration: int, phases: PhaseTimes) -> None:
        """Writes the tables."""
        if not hasattr(self, "_start"):
            return
        total = time.perf_counter() - self._start - self._own_s
        self._stop()
        n_iterations = iteration - self._first + 1
        table = _phase_table(phases.seconds, total)
        lines = [f"profile of {count(n_iterations, 'iteration')}, from number {self._first}", "", *table, ""]
        if self._operators:
            lines += [*self._operators, "", f"trace: {self._folder / TRACE}, for {VIEWERS}"]
        else:
            lines.append(f"no trace: that takes at least {N_SKIPPED + 1} iterations in one session")
        self.summary = "\n".join(lines)
        write_atomically(self._folder / SUMMARY, self.summary + "\n", sync=False)

    def _stop(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            with suppress(RuntimeError):  # of a training run that failed while it was traced
                profiler.stop()

    def _save_trace(self, profiler: profile) -> None:
        profiler.export_chrome_trace(str(self._folder / TRACE))
        self._operators = _operator_table(profiler, self._first + N_SKIPPED, self._last)


def _phase_table(seconds: dict[str, float], total: float) -> list[str]:
    rest = max(0.0, total - sum(seconds.values()))
    rows = {**seconds, "everything else": rest, "total": total}
    return [
        f"{'phase':<18}{'time':>12}{'share':>8}",
        *(f"{name:<18}{format_duration(value):>12}{value / total:>8.1%}" for name, value in rows.items()),
    ]


def _operator_table(profiler: profile, first: int, last: int) -> list[str]:
    """The operators with the most time of their own, which excludes operators that they call."""
    events = [event for event in profiler.key_averages() if "::" in event.key or event.self_device_time_total]
    on_gpu = any(event.self_device_time_total for event in events)
    self_time = {e.key: e.self_device_time_total if on_gpu else e.self_cpu_time_total for e in events}
    total = sum(self_time.values()) or 1.0
    top = sorted(events, key=lambda event: -self_time[event.key])[:N_OPERATORS]
    width = max((len(event.key[:48]) for event in top), default=8)
    unit = "GPU" if on_gpu else "CPU"
    return [
        f"operators by {unit} time of their own, iterations {first} to {last}",
        f"{'operator':<{width}}{'calls':>10}{'ms':>12}{'share':>8}",
        *(
            f"{event.key[:48]:<{width}}{event.count:>10,}{self_time[event.key] / 1e3:>12,.1f}"
            f"{self_time[event.key] / total:>8.1%}"
            for event in top
        ),
    ]
