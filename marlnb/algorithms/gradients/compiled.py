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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from marlnb.display.notice import print_notice
from marlnb.errors import MarlnbError
from marlnb.models.policies.random_numbers import Draw, Draws, Generators

RELATIVE_TOLERANCE = 1e-3

Loss = Callable[[Any, Generators], tuple[Tensor, dict[str, Tensor]]]
"""A scalar and metrics of a minibatch, which is a tensor, or dictionaries and tuples of tensors and numbers. Random
numbers come from the second argument."""


class NotCompiledError(MarlnbError):
    """A gradient cannot be compiled here; the message says why."""


class GradientCompiler:
    """Compiles the gradient of one loss while the training continues, and gives it when it is due.

    Args:
        loss: what the gradient is of.
        modules: whose parameters and buffers the loss reads. They are changed in place only.
        parameters: of the modules, of which the gradient is computed.
        name: of what is compiled, for messages.
        after: number of the first update that uses the compiled gradient.
        start: number of the update at which the compiler starts.

    Attributes:
        compiled: whether gradients are compiled ones; None: not decided yet. A resumed training continues as it was.
    """

    def __init__(
        self, loss: Loss, modules: nn.Module, parameters: Sequence[Tensor], name: str, *, after: int, start: int = 0
    ) -> None:
        self._loss, self._modules, self._parameters, self._name = loss, modules, list(parameters), name
        self._after, self._start = after, start
        self._traced: TracedGradient | None = None
        self._job: _Job | None = None
        self._gradient: CompiledGradient | None = None
        self.compiled: bool | None = None
        self.failed = False

    def start(self, update: int, minibatch: Any) -> None:
        """Starts to compile for minibatches of these sizes, if it is due; returns at once, and starts only once."""
        if self._job is not None or self.failed or self.compiled is False or update < self._start:
            return
        try:
            self._traced = trace(self._loss, self._modules, self._parameters, minibatch)
            self._job = _Job(self._traced.graph, self._traced.inputs(minibatch))
        except Exception as error:  # of anyone's loss: whatever cannot be traced is computed as before
            self._fail(error)

    def gradient(self, update: int, minibatch: Any) -> CompiledGradient | None:
        """The compiled gradient for minibatches of these sizes; None if it is not due or, after a notice, not available.

        It waits for the compiler, and compares its result with torch's on this minibatch first.
        """
        self.start(update, minibatch)
        if self.compiled is False or (update < self._after and not self.failed):
            return None
        if self._gradient is None and not self.failed:
            self._gradient = self._wait(minibatch)
        self.compiled = self._gradient is not None
        return self._gradient if self._gradient is not None and self._gradient.fits(minibatch) else None

    def _wait(self, minibatch: Any) -> CompiledGradient | None:
        if self._job is None or self._traced is None:
            return None
        try:
            if not self._job.finished:
                print_notice(f"compiling the update of {self._name}: up to some minutes, once on this machine")
            compiled = CompiledGradient(self._job.wait(), self._traced, minibatch)
            self._compare(compiled, minibatch)
            return compiled
        except Exception as error:
            self._fail(error)
            return None

    def _compare(self, compiled: CompiledGradient, minibatch: Any) -> None:
        numbers = compiled.draw(Draws())
        loss, _ = self._loss(minibatch, Draws(iter(numbers)))
        expected = torch.autograd.grad(loss, self._parameters)
        for ours, wanted in zip(compiled(minibatch, Draws(iter(numbers)))[0], expected):
            difference, size = (ours - wanted).abs().max(), wanted.abs().max()
            if not difference <= RELATIVE_TOLERANCE * size + 1e-6:
                raise NotCompiledError(f"it differs from torch's by {float(difference):.2g} of {float(size):.2g}")

    def _fail(self, error: Exception) -> None:
        self.failed = True
        reason = str(error) or type(error).__name__
        print_notice(f"the update of {self._name} is not compiled; the training continues without it: {reason}")


class TracedGradient(NamedTuple):
    """A graph of torch's operators from tensors to the gradient of each parameter and the stacked metrics.

    Attributes:
        graph: its arguments are parameters, constants, the minibatch's tensors and random numbers.
        parameters: without gradient; they share memory with the modules' own.
        constants: other parameters and buffers that the loss reads, likewise.
        draws: the random numbers, in the order of the loss.
        metrics: their names.
    """

    graph: torch.fx.GraphModule
    parameters: list[Tensor]
    constants: list[Tensor]
    draws: list[Draw]
    metrics: tuple[str, ...]

    def inputs(self, minibatch: Any) -> list[Tensor]:
        """Arguments of the graph, for their sizes: the random numbers are any."""
        numbers = [draw(Draws()) for draw in self.draws]
        return [*self.parameters, *self.constants, *tensors_of(minibatch), *numbers]


class CompiledGradient:
    """A library that computes the gradients and the metrics of minibatches with the sizes of `example`."""

    def __init__(self, library: Path, traced: TracedGradient, example: Any) -> None:
        self._library = torch._C._aoti.AOTIModelPackageLoader(str(library), "model", False, 1, -1)  # type: ignore[attr-defined]
        self._weights = [*traced.parameters, *traced.constants]
        self._draws, self._metrics, self._sizes = traced.draws, traced.metrics, _sizes(example)

    def fits(self, minibatch: Any) -> bool:
        """Whether the minibatch has the fields and sizes that the library was compiled for."""
        return self._sizes == _sizes(minibatch)

    def draw(self, generator: Generators) -> list[Tensor]:
        """The random numbers of one call."""
        return [draw(generator) for draw in self._draws]

    def __call__(self, minibatch: Any, generator: Generators = None) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The gradient of each parameter, and the metrics."""
        inputs = [*self._weights, *tensors_of(minibatch), *self.draw(generator)]
        *gradients, metrics = self._library.boxed_run(inputs)
        return gradients, dict(zip(self._metrics, metrics.unbind()))


def trace(loss: Loss, modules: nn.Module, parameters: Sequence[Tensor], minibatch: Any) -> TracedGradient:
    """The gradient of the loss of minibatches with these sizes.

    Raises:
        NotCompiledError: the loss reads tensors that are none of the modules' and none of the minibatch's.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    names, draws = {id(weight): name for name, weight in _tensors(modules)}, Draws()
    with torch.no_grad():
        metrics = tuple(loss(minibatch, draws)[1])
    trained = [names[id(weight)] for weight in parameters]
    others = {name: tensor for name, tensor in _tensors(modules) if name not in trained}
    leaves, structure = tree_flatten(minibatch)
    module, n_trained, n_weights = _Loss(modules, loss), len(trained), len(trained) + len(others)

    def gradient(*tensors: Tensor) -> list[Tensor]:
        replaced = dict(zip((f"modules_read.{name}" for name in (*trained, *others)), tensors))
        rest = iter(tensors[n_weights:])
        whole = tree_unflatten([next(rest) if isinstance(leaf, Tensor) else leaf for leaf in leaves], structure)
        value, of_loss = torch.func.functional_call(module, replaced, (whole, Draws(rest)))
        return [*torch.autograd.grad(value, tensors[:n_trained]), torch.stack(tuple(of_loss.values()))]

    weights = [weight.detach().clone().requires_grad_() for weight in parameters]
    constants = [tensor.detach() for tensor in others.values()]
    numbers = [draw(Draws()) for draw in draws.noted]
    arguments = (*weights, *constants, *tensors_of(minibatch), *numbers)
    graph = make_fx(gradient, tracing_mode="fake", _allow_non_fake_inputs=True)(*arguments)
    graph.graph.eliminate_dead_code()
    if any(node.op == "get_attr" for node in graph.graph.nodes):
        raise NotCompiledError("the loss reads a tensor that is neither a parameter nor a field of the minibatch")
    places = [node for node in graph.graph.nodes if node.op == "placeholder"][n_trained:n_weights]
    read = [bool(place.users) for place in places]
    for place in (place for place, is_read in zip(places, read) if not is_read):
        graph.graph.erase_node(place)
    graph.recompile()
    for node in graph.graph.nodes:
        node.meta.clear()  # fake tensors of this process
    constants = [tensor for tensor, is_read in zip(constants, read) if is_read]
    return TracedGradient(graph, [weight.detach() for weight in parameters], constants, draws.noted, metrics)


def tensors_of(minibatch: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(minibatch)[0] if isinstance(leaf, Tensor)]


def _sizes(minibatch: Any) -> tuple[Any, ...]:
    """What a library is compiled for: fields, shapes, and whatever is no tensor."""
    leaves, structure = tree_flatten(minibatch)
    return structure, [leaf.shape if isinstance(leaf, Tensor) else leaf for leaf in leaves]


def _tensors(modules: nn.Module) -> list[tuple[str, Tensor]]:
    return [*modules.named_parameters(), *modules.named_buffers()]


class _Loss(nn.Module):
    """The loss as the output of a module, so that `functional_call` can replace the tensors that it reads."""

    def __init__(self, modules: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.modules_read, self._loss = modules, loss

    def forward(self, minibatch: Any, generator: Generators) -> tuple[Tensor, dict[str, Tensor]]:
        return self._loss(minibatch, generator)


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
