"""The gradient of a minibatch as machine code: traced once, compiled by torch's inductor in a process, kept on disk.

The loss, its metrics and its gradient become one graph of torch's operators (`trace`). A process compiles it to a
shared library (AOTInductor), which takes half a minute to minutes and needs a C++ compiler. The library is kept in
`~/.cache/marlnb` (`$XDG_CACHE_HOME`), under a name that depends on the graph, its shapes, the processor and torch's
version, so that a changed loss or network is another library.
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

import torch
from torch import Tensor, nn

from marlnb.display.notice import print_notice
from marlnb.errors import MarlnbError

RELATIVE_TOLERANCE = 1e-3

Loss = Callable[[Mapping[str, Tensor]], tuple[Tensor, dict[str, Tensor]]]


class NotCompiledError(MarlnbError):
    """A gradient cannot be compiled here; the message says why."""


class GradientCompiler:
    """Compiles the gradient of one loss while the training continues, and gives it when asked for.

    Args:
        loss: of a minibatch; returns a scalar, and metrics.
        policy: whose parameters the loss reads.
        parameters: of the policy, of which the gradient is computed.
        name: of the group, for messages.
    """

    def __init__(self, loss: Loss, policy: nn.Module, parameters: Sequence[Tensor], name: str) -> None:
        self._loss, self._policy, self._parameters, self._name = loss, policy, list(parameters), name
        self._job: _Job | None = None
        self._gradient: CompiledGradient | None = None
        self.failed = False

    def start(self, minibatch: Mapping[str, Tensor]) -> None:
        """Starts to compile for minibatches of these sizes; returns at once, and does nothing the second time."""
        if self._job is None and not self.failed:
            try:
                self._job = _Job(trace(self._loss, self._policy, self._parameters, minibatch), self._inputs(minibatch))
            except Exception as error:  # of anyone's loss: whatever cannot be traced is computed as before
                self._fail(error)

    def gradient(self, minibatch: Mapping[str, Tensor]) -> CompiledGradient | None:
        """The compiled gradient; waits until it is there. None, after a notice, if it is not available.

        It is compared with torch's on this minibatch first.
        """
        if self._gradient is None and not self.failed:
            assert self._job is not None
            try:
                if not self._job.finished:
                    print_notice(f"compiling the update of {self._name!r}: up to some minutes, once on this machine")
                compiled = CompiledGradient(self._job.wait(), self._parameters, minibatch, self._metrics(minibatch))
                self._compare(compiled, minibatch)
                self._gradient = compiled
            except Exception as error:
                self._fail(error)
        return self._gradient

    def _inputs(self, minibatch: Mapping[str, Tensor]) -> list[Tensor]:
        return [*(weight.detach() for weight in self._parameters), *minibatch.values()]

    def _metrics(self, minibatch: Mapping[str, Tensor]) -> tuple[str, ...]:
        with torch.no_grad():
            return tuple(self._loss(minibatch)[1])

    def _compare(self, compiled: CompiledGradient, minibatch: Mapping[str, Tensor]) -> None:
        expected = torch.autograd.grad(self._loss(minibatch)[0], self._parameters)
        for ours, wanted in zip(compiled(minibatch)[0], expected):
            difference, size = (ours - wanted).abs().max(), wanted.abs().max()
            if not difference <= RELATIVE_TOLERANCE * size + 1e-6:
                raise NotCompiledError(f"it differs from torch's by {float(difference):.2g} of {float(size):.2g}")

    def _fail(self, error: Exception) -> None:
        self.failed = True
        reason = str(error) or type(error).__name__
        print_notice(f"the update of {self._name!r} is not compiled; the training continues without it: {reason}")


class CompiledGradient:
    """A library that computes the gradients and the metrics of a minibatch of fixed sizes."""

    def __init__(
        self, library: Path, parameters: Sequence[Tensor], example: Mapping[str, Tensor], metrics: tuple[str, ...]
    ) -> None:
        self._library = torch._C._aoti.AOTIModelPackageLoader(str(library), "model", False, 1, -1)  # type: ignore[attr-defined]
        self._parameters = [weight.detach() for weight in parameters]  # share memory with what they are of
        self._sizes = {key: value.shape for key, value in example.items()}
        self._metrics = metrics

    def fits(self, minibatch: Mapping[str, Tensor]) -> bool:
        """Whether the minibatch has the fields and sizes that the library was compiled for."""
        return self._sizes == {key: value.shape for key, value in minibatch.items()}

    def __call__(self, minibatch: Mapping[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The gradient of each parameter, and the metrics."""
        *gradients, metrics = self._library.boxed_run([*self._parameters, *minibatch.values()])
        return gradients, dict(zip(self._metrics, metrics.unbind()))


def trace(
    loss: Loss, policy: nn.Module, parameters: Sequence[Tensor], minibatch: Mapping[str, Tensor]
) -> torch.fx.GraphModule:
    """A graph from parameters and a minibatch's fields to the gradient of each parameter and the stacked metrics.

    Raises:
        NotCompiledError: the loss reads tensors that are neither.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    names = {id(weight): name for name, weight in policy.named_parameters()}
    module, n_weights, keys = _Loss(policy, loss), len(parameters), list(minibatch)

    def gradient(*tensors: Tensor) -> list[Tensor]:
        weights = tensors[:n_weights]
        replaced = {f"policy.{names[id(weight)]}": new for weight, new in zip(parameters, weights)}
        value, metrics = torch.func.functional_call(module, replaced, (dict(zip(keys, tensors[n_weights:])),))
        return [*torch.autograd.grad(value, weights), torch.stack(tuple(metrics.values()))]

    weights = [weight.detach().clone().requires_grad_() for weight in parameters]
    graph = make_fx(gradient, tracing_mode="fake")(*weights, *minibatch.values())
    if any(node.op == "get_attr" for node in graph.graph.nodes):
        raise NotCompiledError("the loss reads a tensor that is neither a parameter nor a field of the minibatch")
    for node in graph.graph.nodes:
        node.meta.clear()  # fake tensors of this process
    return graph


class _Loss(nn.Module):
    """The loss as the output of a module, so that `functional_call` can replace its parameters."""

    def __init__(self, policy: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.policy, self._loss = policy, loss

    def forward(self, minibatch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return self._loss(minibatch)


class _Job:
    """The process that compiles, or the library that exists already."""

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


def cache_folder() -> Path:
    """Where compiled gradients are kept; may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "marlnb" / "gradients"


def _processor() -> str:
    """What the machine code depends on: the processor's instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
