"""A gradient step as a graph of torch's operators: the loss, its metrics, its gradient and the step of Adam."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from marlnb.algorithms.gradients.adam import Factors, PartAdam, adam_step
from marlnb.errors import MarlnbError
from marlnb.models.policies.random_numbers import Generators, RandomInputs, RandomSpec

Minibatch = Mapping[Any, Tensor]
"""Tensors by any keys."""
Loss = Callable[[Any, Generators], tuple[Tensor, dict[str, Tensor]]]
"""A scalar and metrics of a Minibatch. Random numbers come from the second argument."""


class NotCompiledError(MarlnbError):
    """A step cannot be compiled here; the message says why."""


class TracedStep(NamedTuple):
    """A gradient step, which changes weights and moments in place.

    Attributes:
        graph: from weights, moments, factors, constants, the minibatch's tensors and random numbers to the metrics and
            each part's gradient norm, `[metric + part]`.
        weights: of the optimizer's parts in turn, without gradient; they share memory with the modules' own.
        constants: other parameters and buffers that the loss reads, likewise.
        draws: the random numbers, in the order of the loss.
        metrics: their names.
    """

    graph: torch.fx.GraphModule
    weights: list[Tensor]
    constants: list[Tensor]
    draws: list[RandomSpec]
    metrics: tuple[str, ...]


def trace(loss: Loss, modules: nn.Module, optimizer: PartAdam, max_norm: float, minibatch: Minibatch) -> TracedStep:
    """A gradient step on minibatches with these sizes.

    Args:
        loss, optimizer, max_norm: as of `StepCompiler`.
        modules: whose parameters and buffers the loss reads.
        minibatch: an example.
    Raises:
        NotCompiledError: the loss reads tensors that are none of the modules' and none of the minibatch's, or draws
            random numbers from another generator than the one that it is given.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    names, draws = {id(weight): name for name, weight in _named_tensors(modules)}, RandomInputs()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):  # a loss may draw from the training's generator
        metrics = tuple(loss(minibatch, draws)[1])
    trained = [names[id(weight)] for weight in optimizer.all_parameters]
    others = {name: tensor.detach() for name, tensor in _named_tensors(modules) if name not in trained}
    weights = [weight.detach() for weight in optimizer.all_parameters]
    factors = tensors_of_factors([Factors(-1.0, 1.0) for _ in optimizer.parameters])
    module = _Loss(modules, loss)
    counts = len(weights), len(optimizer.all_moments), len(factors), len(others)

    def step(*arguments: Tensor) -> Tensor:
        remaining = iter(arguments)
        changed, moments, factors, read = (list(itertools.islice(remaining, count)) for count in counts)
        whole = {key: next(remaining) for key in minibatch}
        variables = [weight.detach().requires_grad_() for weight in changed]
        replaced = dict(zip((f"modules_read.{name}" for name in (*trained, *others)), (*variables, *read)))
        value, of_loss = torch.func.functional_call(module, replaced, (whole, RandomInputs(remaining)))
        gradients = torch.autograd.grad(value, variables)
        pairs = [Factors(*pair) for pair in zip(factors[::2], factors[1::2])]
        norms = adam_step(optimizer.parts_of(changed), gradients, moments, pairs, max_norm, optimizer.eps)
        return torch.cat((torch.stack(tuple(of_loss.values())), norms))

    changed = [tensor.clone() for tensor in (*weights, *optimizer.all_moments)]
    numbers = [draw(RandomInputs()) for draw in draws.noted]
    arguments = (*changed, *factors, *others.values(), *minibatch.values(), *numbers)
    graph = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*arguments)
    graph.graph.eliminate_dead_code()
    if any(node.op == "get_attr" for node in graph.graph.nodes):
        raise NotCompiledError("the loss reads a tensor that is neither a parameter nor a field of the minibatch")
    if any(torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in graph.graph.nodes):
        raise NotCompiledError("the loss draws random numbers from another generator than the learner's")
    places = [node for node in graph.graph.nodes if node.op == "placeholder"][sum(counts[:3]) : sum(counts)]
    constants = [tensor for tensor, place in zip(others.values(), places, strict=True) if place.users]
    for place in places:
        if not place.users:
            graph.graph.erase_node(place)
    graph.recompile()
    for node in graph.graph.nodes:
        node.meta.clear()  # fake tensors of this process
    return TracedStep(graph, weights, constants, draws.noted, metrics)


def sizes_of(minibatch: Minibatch) -> list[tuple[Any, torch.Size]]:
    """What a step is traced for: the fields in their order, and their shapes."""
    return [(key, value.shape) for key, value in minibatch.items()]


def tensors_of_factors(factors: Sequence[Factors]) -> list[Tensor]:
    """As arguments of the graph."""
    return [torch.tensor(float(factor)) for of_part in factors for factor in of_part]


def _named_tensors(modules: nn.Module) -> list[tuple[str, Tensor]]:
    return [*modules.named_parameters(), *modules.named_buffers()]


class _Loss(nn.Module):
    """The loss as the output of a module, so that `functional_call` can replace the tensors that it reads."""

    def __init__(self, modules: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.modules_read, self._loss = modules, loss

    def forward(self, minibatch: Minibatch, generator: Generators) -> tuple[Tensor, dict[str, Tensor]]:
        return self._loss(minibatch, generator)
