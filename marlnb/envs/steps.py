"""Cloning and comparing the steps of a VectorEnv, and random actions; used by the contract check and tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import torch
from torch import Tensor

from marlnb.envs.vector import GroupStep, Step, VectorEnv
from marlnb.specs import ActionSpec


def random_actions(env: VectorEnv, step: Step, generator: torch.Generator) -> dict[str, Tensor]:
    """Random actions that action masks allow; any where they allow none, as those of dead agents may."""
    actions = {}
    for group in env.spec.groups:
        spec, mask = group.action, step.groups[group.name].action_mask
        rows = (env.n_envs, group.n_agents)
        if spec.kind == "continuous":
            low, high = torch.tensor(spec.low), torch.tensor(spec.high)
            drawn = low + (high - low) * torch.rand(*rows, len(spec.low), generator=generator)
            drawn = drawn.clamp(low, high)
        else:
            allowed = torch.ones(*rows, spec.n_logits) if mask is None else mask.cpu().float()
            parts = [
                torch.multinomial(part.where(part.any(-1, True), 1).flatten(0, 1), 1, generator=generator).view(rows)
                for part in allowed.split(list(spec.n), -1)
            ]
            drawn = torch.stack(parts, -1) if spec.shape else parts[0]
        actions[group.name] = drawn.to(env.device)
    return actions


def where_acting(actions: Tensor, others: Tensor, acting: Tensor) -> Tensor:
    return torch.where(acting if actions.dim() == 2 else acting[..., None], actions, others)


def has_choice(mask: Tensor, action: ActionSpec) -> Tensor:
    return torch.stack([part.any(-1) for part in mask.split(list(action.n), -1)], -1).all(-1)


def any_per_agent(flags: Tensor) -> Tensor:
    return flags.flatten(2).any(-1)


def tensors(step: Step) -> Iterator[Tensor]:
    for rows in step.groups.values():
        yield from (value for field in fields(GroupStep) if (value := getattr(rows, field.name)) is not None)
    yield from (value for value in (step.done, step.episode_seed, step.state, step.final_state) if value is not None)


def copy_step(source: Step, target: Step) -> None:
    """Copies every tensor of a step into another step's buffers."""
    for value, buffer in zip(tensors(source), tensors(target), strict=True):
        buffer.copy_(value)


def addresses(step: Step) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors(step)]


def clone_step(step: Step) -> Step:
    def clone(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.clone()

    groups = {
        name: GroupStep(**{field.name: clone(getattr(rows, field.name)) for field in fields(GroupStep)})  # type: ignore[arg-type]
        for name, rows in step.groups.items()
    }
    shared = {name: clone(getattr(step, name)) for name in ("done", "episode_seed", "state", "final_state")}
    return replace(step, groups=groups, **shared)  # type: ignore[arg-type]


def valid(step: Step) -> Iterator[Tensor]:
    """The meaningful tensors of a step, each `[env, ...]`: what is final counts only where an agent ended."""
    for rows in step.groups.values():
        ended = (rows.terminated | rows.truncated).view(*rows.alive.shape, *[1] * (rows.final_observation.dim() - 2))
        yield from (rows.observation, rows.alive, rows.acting, rows.reward, rows.terminated, rows.truncated)
        yield torch.where(ended, rows.final_observation, 0)
        if rows.action_mask is not None and rows.final_action_mask is not None:
            yield rows.action_mask
            yield rows.final_action_mask & rows.truncated[..., None]
    yield step.done
    if step.state is not None:
        yield step.state


def differ(first: Step, second: Step) -> Tensor:
    """`[env]` bool: the envs in which two steps differ."""
    return (
        torch.stack(
            [(a != b).flatten(1).any(1) if a.dim() > 1 else a != b for a, b in zip(valid(first), valid(second))]
        )
        .any(0)
        .cpu()
    )


def envs_differ(step: Step, first: int, second: int) -> bool:
    return not all(torch.equal(tensor[first], tensor[second]) for tensor in valid(step))


def describe_envs(flags: Tensor) -> str:
    """`env 1` or `envs 0, 2`: the envs in which any flag is set."""
    indices = flags.reshape(flags.shape[0], -1).any(1).nonzero().flatten().tolist()
    return f"{'env' if len(indices) == 1 else 'envs'} {', '.join(map(str, indices))}"
