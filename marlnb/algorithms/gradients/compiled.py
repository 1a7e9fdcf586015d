"""A gradient step as machine code: traced once, compiled by torch's inductor in a process, kept on disk.

The loss, its metrics, its gradient and the step of Adam become one graph of torch's operators (`trace`). A process
compiles it to a shared library (AOTInductor), which takes half a minute to minutes and needs a C++ compiler. The
library is kept in `~/.cache/marlnb` (`$XDG_CACHE_HOME`), under a name that depends on the graph, its shapes, the
processor and torch's version, so that a changed loss or network is another library.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from marlnb.algorithms.gradients.adam import Factors, PartAdam
from marlnb.algorithms.gradients.comparison import check_step
from marlnb.algorithms.gradients.traced import (
    Loss,
    Minibatch,
    NotCompiledError,
    TracedStep,
    sizes_of,
    tensors_of_factors,
    trace,
)
from marlnb.display.notice import print_notice
from marlnb.models.policies.random_numbers import Generators, RandomInputs


class StepCompiler:
    """Compiles the gradient step of one loss while the training continues, and gives it when it is due.

    Args:
        loss: what is minimised.
        modules: returns the one whose parameters and buffers the loss reads. They are changed in place only.
        optimizer: of the parameters that the step changes.
        max_norm: bound on the gradient norm of each part; 0: none.
        name: of what is compiled, for messages.
        after: number of the first update that uses the compiled step.
        start: number of the update at which the compiler starts.
        may_change: whether the loss may read Python numbers that change from update to update, as anyone's own. The
            compiled step keeps those that it was traced with, so it is traced again from time to time.

    Attributes:
        compiled: whether steps are compiled ones; None: not decided yet. A resumed training run continues as it was.
    """

    def __init__(
        self,
        loss: Loss,
        modules: Callable[[], nn.Module],
        optimizer: PartAdam,
        max_norm: float,
        name: str,
        *,
        after: int,
        start: int = 0,
        may_change: bool = False,
    ) -> None:
        self._loss, self._modules, self._optimizer, self._max_norm = loss, modules, optimizer, max_norm
        self._name, self._after, self._start, self._may_change = name, after, start, may_change
        self._traced_at = self._next_check = 0  # numbers of updates
        self._traced: TracedStep | None = None
        self._job: _Job | None = None
        self._step: CompiledStep | None = None
        self.compiled: bool | None = None
        self.failed = False

    def start(self, update: int, minibatch: Minibatch) -> None:
        """Starts to compile for minibatches of these sizes, if it is due; returns at once, and starts only once.

        Before the compiled step is due, this process runs one compiler at a time: each takes up to a gigabyte.
        """
        if self._job is not None or self.failed or self.compiled is False or update < self._start:
            return
        if update < self._after and _Job.is_any_running():
            return
        try:
            self._traced = self._trace(minibatch)
            self._traced_at, self._next_check = update, update + 1
            self._job = _Job(self._traced.graph, self._arguments(self._traced, minibatch))
        except Exception as error:  # of anyone's loss: whatever cannot be traced is computed as before
            self._fail(error)

    def step(self, update: int, minibatch: Minibatch) -> CompiledStep | None:
        """The compiled step for minibatches of these sizes; None if it is not due or, after a notice, not available.

        It waits for the compiler, and compares its result with torch's on this minibatch first.
        """
        self.start(update, minibatch)
        if self.compiled is False or (update < self._after and not self.failed):
            return None
        if self._step is None and not self.failed:
            self._step = self._wait(minibatch)
        if self._may_change and update >= self._next_check and self._step is not None and self._step.fits(minibatch):
            self._check_unchanged(update, minibatch)
        self.compiled = self._step is not None
        return self._step if self._step is not None and self._step.fits(minibatch) else None

    def refuse(self, reason: str) -> None:
        """The steps cannot be compiled, which a notice says once."""
        if not self.failed:
            self._fail(NotCompiledError(reason))

    def _trace(self, minibatch: Minibatch) -> TracedStep:
        return trace(self._loss, self._modules(), self._optimizer, self._max_norm, minibatch)

    def _check_unchanged(self, update: int, minibatch: Minibatch) -> None:
        """Traces again, at the first use and after 1, 2, 4, ... updates; a changed loss is not compiled any more."""
        self._next_check = 2 * update - self._traced_at
        try:
            if self._traced is None or self._trace(minibatch).graph.code != self._traced.graph.code:
                raise NotCompiledError("its loss reads Python numbers that change from update to update")
        except Exception as error:
            self._step = None
            self._fail(error)

    def _wait(self, minibatch: Minibatch) -> CompiledStep | None:
        if self._job is None or self._traced is None:
            return None
        try:
            if not self._job.finished:
                print_notice(f"compiling the update of {self._name}: up to some minutes, once on this machine")
            compiled = CompiledStep(self._job.wait(), self._traced, self._optimizer, minibatch)
            modules, optimizer = self._modules(), self._optimizer
            check_step(compiled.execute, self._traced, self._loss, modules, optimizer, self._max_norm, minibatch)
            return compiled
        except Exception as error:
            self._fail(error)
            return None

    def _arguments(self, traced: TracedStep, minibatch: Minibatch) -> list[Tensor]:
        """Of the graph, for their sizes."""
        factors = tensors_of_factors([Factors(-1.0, 1.0) for _ in self._optimizer.parameters])
        numbers = [draw(RandomInputs()) for draw in traced.draws]
        moments = self._optimizer.all_moments
        return [*traced.weights, *moments, *factors, *traced.constants, *minibatch.values(), *numbers]

    def _fail(self, error: Exception) -> None:
        self.failed = True
        reason = str(error) or type(error).__name__
        print_notice(f"the update of {self._name} is not compiled; the training continues without it: {reason}")


class CompiledStep:
    """A library that makes the gradient step on minibatches with the sizes of `example`."""

    def __init__(self, library: Path, traced: TracedStep, optimizer: PartAdam, example: Minibatch) -> None:
        self._library = torch._C._aoti.AOTIModelPackageLoader(str(library), "model", False, 1, -1)  # type: ignore[attr-defined]
        self._traced, self._optimizer, self._sizes = traced, optimizer, sizes_of(example)

    def fits(self, minibatch: Minibatch) -> bool:
        """Whether the minibatch has the fields and sizes that the library was compiled for."""
        return self._sizes == sizes_of(minibatch)

    def __call__(
        self, minibatch: Minibatch, lr: Mapping[str, float | Tensor], generator: Generators = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """One step, with a learning rate for each part; metrics, and each part's gradient norm `[part]`."""
        numbers = [draw(generator) for draw in self._traced.draws]
        factors, moments = self._optimizer.count_step(lr), self._optimizer.all_moments
        values = self.execute(self._traced.weights, moments, minibatch, numbers, factors)
        names = self._traced.metrics
        return dict(zip(names, values[: len(names)].unbind())), values[len(names) :]

    def execute(
        self,
        weights: Sequence[Tensor],
        moments: Sequence[Tensor],
        minibatch: Minibatch,
        numbers: Sequence[Tensor],
        factors: Sequence[Factors],
    ) -> Tensor:
        """The result of the graph; changes weights and moments."""
        rest = [*tensors_of_factors(factors), *self._traced.constants, *minibatch.values(), *numbers]
        values: Tensor = self._library.boxed_run([*weights, *moments, *rest])[0]
        return values


class _Job:
    """The process that compiles, or the library that exists already."""

    _started: ClassVar[list[subprocess.Popen[bytes]]] = []

    @classmethod
    def is_any_running(cls) -> bool:
        cls._started = [process for process in cls._started if process.poll() is None]
        return bool(cls._started)

    def __init__(self, graph: torch.fx.GraphModule, inputs: Sequence[Tensor]) -> None:
        sizes = [(tuple(value.shape), str(value.dtype)) for value in inputs]
        circumstances = (torch.__version__, platform.machine(), _processor(), torch.get_num_threads())
        key = hashlib.sha256(repr((graph.code, sizes, circumstances)).encode()).hexdigest()[:32]
        self._library = cache_folder() / f"{key}.pt2"
        self._process: subprocess.Popen[bytes] | None = None
        if self._library.exists():
            return
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None:
            raise NotCompiledError(f"there is no C++ compiler {compiler!r} here; install one, or set CXX")
        self._library.parent.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix="marlnb-compile-")
        folder = Path(self._folder.name)
        source, self._log = folder / "graph.pickle", folder / "log"
        source.write_bytes(pickle.dumps((graph, sizes, torch.get_num_threads())))
        command = [sys.executable, "-m", "marlnb.algorithms.gradients.compile_graph", str(source), str(self._library)]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")},
            )
        self._started.append(self._process)

    @property
    def finished(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def wait(self) -> Path:
        """The library. Raises NotCompiledError if it could not be compiled."""
        if self._process is not None:
            try:
                status = self._process.wait()
            except BaseException:  # interrupted
                self._process.kill()
                raise
            text = self._log.read_text(errors="replace").splitlines()
            lines = [line for line in text if line and not line[0].isspace()]
            self._folder.cleanup()
            if status or not self._library.exists():
                raise NotCompiledError(f"torch's compiler ended with {status}: {lines[-1] if lines else 'no message'}")
        return self._library


def are_built_in(*objects: object) -> bool:
    """Whether the classes of all objects are marlnb's or torch's."""
    return all(type(each).__module__.startswith(("marlnb.", "torch.")) for each in objects)


def cache_folder() -> Path:
    """Where compiled steps are kept; may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "marlnb" / "gradients"


def _processor() -> str:
    """What the machine code depends on: the processor's instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
