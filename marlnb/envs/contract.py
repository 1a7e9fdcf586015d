"""The contract that every VectorEnv keeps, as a check that anybody can run on an environment of their own.

check_vector_env(lambda n_envs: MyConfig().build(n_envs))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from marlnb.envs.steps import (
    any_of_agent,
    cloned,
    copies_differ,
    differ,
    may_act,
    mixed,
    places,
    random_actions,
    valid,
    where,
)
from marlnb.envs.vector import Step, VectorEnv, episode_seeds
from marlnb.errors import EnvError
from marlnb.specs import SEED_SPAN, GroupSpec

COPIES = 3


def check_vector_env(
    build: Callable[[int], VectorEnv], *, episodes: int = 2, seed: int = 0, most_steps: int = 3000
) -> None:
    """Builds, plays and closes an environment, and raises at the first clause of the contract that it breaks.

    Args:
        build: a new VectorEnv of that many copies; called several times.
        episodes: episodes that copy 0 must end, acting at random.
        most_steps: steps in which it must have done so.
    Raises:
        EnvError: names the clause, and says what was found.
    """
    with build(COPIES) as env:
        played = _play(env, episodes, seed, most_steps)
        _check_again(env, played, seed, "the same environment, reset")
        _check_saved_state(env, seed)
        _check_extremes(env, seed)
    env.close()
    with build(COPIES) as env:
        _check_again(env, played, seed, "a second one built alike")
        _check_seeds_alone(env, seed)


def _fail(env: VectorEnv, clause: str, found: str) -> EnvError:
    return EnvError(f"{env.spec.name} breaks the contract of VectorEnv, clause {clause!r}: {found}")


class _Played:
    """What was seen while playing: a copy of every step, and the actions between them."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.actions: list[dict[str, Tensor]] = []


def _play(env: VectorEnv, episodes: int, seed: int, most_steps: int) -> _Played:
    """Plays at random, checking each step against the one before."""
    if env.n_envs != COPIES:
        raise _fail(env, "number of copies", f"{COPIES} were asked for, n_envs is {env.n_envs}")
    generator, played, ended = torch.Generator().manual_seed(seed), _Played(), torch.zeros(COPIES, dtype=torch.int64)
    step = env.reset(seed)
    first_places = places(step)
    _check_form(env, step)
    _check_start(env, step)
    _check_seeds(env, step, seed, ended)
    played.steps.append(cloned(step))
    while int(ended[0]) < episodes:
        if len(played.actions) >= most_steps:
            raise _fail(env, "episodes end", f"copy 0 ended {int(ended[0])} of {episodes} in {most_steps} steps")
        played.actions.append(random_actions(env, step, generator))
        handed = {name: action.clone() for name, action in played.actions[-1].items()}
        step = env.step(handed)
        if not all(torch.equal(handed[name], action) for name, action in played.actions[-1].items()):
            raise _fail(env, "actions left alone", "the actions handed to a step were written to")
        if places(step) != first_places:
            raise _fail(env, "buffers reused", "a tensor of this step is not where that of the first one was")
        _check_form(env, step)
        _check_transition(env, played.steps[-1], step)
        ended += step.done.cpu()
        _check_seeds(env, step, seed, ended)
        _check_labels(env)
        played.steps.append(cloned(step))
    _check_distinct(env, played)
    _check_final(env, played)
    return played


def _expected(group: GroupSpec, n_envs: int) -> Iterator[tuple[str, tuple[int, ...], torch.dtype]]:
    rows = (n_envs, group.n_agents)
    seen = (*rows, *group.observation.shape)
    dtype = getattr(torch, group.observation.dtype)
    yield from (("observation", seen, dtype), ("final_observation", seen, dtype), ("reward", rows, torch.float32))
    yield from ((flag, rows, torch.bool) for flag in ("alive", "acting", "terminated", "truncated"))
    if group.has_action_mask:
        yield "action_mask", (*rows, group.action.n_logits), torch.bool


def _check_form(env: VectorEnv, step: Step) -> None:
    """Shapes, dtypes and devices as the spec says; no NaN; nobody acts who is not alive."""
    if tuple(step.groups) != env.spec.group_names:
        raise _fail(env, "groups", f"the spec has {env.spec.group_names}, the step has {tuple(step.groups)}")
    for group in env.spec.groups:
        for name, shape, dtype in _expected(group, env.n_envs):
            _check_tensor(env, f"{group.name}.{name}", getattr(step.groups[group.name], name), shape, dtype)
        rows = step.groups[group.name]
        if not group.has_action_mask and rows.action_mask is not None:
            raise _fail(env, "action masks", f"group {group.name!r} has one that its spec does not tell of")
        if (rows.acting & ~rows.alive).any():
            raise _fail(env, "acting implies alive", f"group {group.name!r}: {where(rows.acting & ~rows.alive)}")
        if (any_of_agent(rows.observation != 0) & ~rows.alive).any():
            raise _fail(env, "zero rows for the dead", f"group {group.name!r} shows something to one not alive")
        if rows.action_mask is not None and (~may_act(rows.action_mask, group.action) & rows.acting).any():
            raise _fail(env, "action masks", f"an acting agent of group {group.name!r} has no allowed choice")
    _check_tensor(env, "done", step.done, (env.n_envs,), torch.bool)
    _check_tensor(env, "episode_seed", step.episode_seed, (env.n_envs,), torch.int64)
    for name, state in (("state", step.state), ("final_state", step.final_state)):
        if env.spec.state_shape is not None:
            _check_tensor(env, name, state, (env.n_envs, *env.spec.state_shape), torch.float32)
        elif state is not None:
            raise _fail(env, "state", f"the spec has none, the step has a {name}")


def _check_tensor(env: VectorEnv, name: str, value: object, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if not isinstance(value, Tensor):
        raise _fail(env, "shapes", f"{name} should be a tensor {list(shape)}; it is {value!r}")
    if tuple(value.shape) != shape:
        raise _fail(env, "shapes", f"{name} should be {list(shape)}; it is {list(value.shape)}")
    if value.dtype != dtype:
        raise _fail(env, "dtypes", f"{name} should be {dtype}; it is {value.dtype}")
    if value.device.type != torch.device(env.device).type:
        raise _fail(env, "device", f"{name} is on {value.device}; the environment says {env.device}")
    if dtype.is_floating_point and value.isnan().any():
        raise _fail(env, "no NaN", f"{name} has {int(value.isnan().sum())}")


def _check_start(env: VectorEnv, step: Step) -> None:
    """After `reset` there has been no transition, and somebody is there."""
    for name, group in step.groups.items():
        for flag in ("reward", "terminated", "truncated"):
            if getattr(group, flag).any():
                raise _fail(env, "no transition after reset", f"{name}.{flag} is not zero")
    if step.done.any():
        raise _fail(env, "no transition after reset", f"done is {step.done.tolist()}")
    _check_somebody(env, step)


def _check_somebody(env: VectorEnv, step: Step) -> None:
    alive = torch.cat([group.alive for group in step.groups.values()], 1).any(1)
    if not alive.all():
        raise _fail(env, "reset at the end", f"nobody is alive in {where(~alive)}")


def _check_transition(env: VectorEnv, before: Step, step: Step) -> None:
    """Who ended was alive and is no more; who did not goes on; a copy is done when nobody is left, and starts again."""
    done = step.done[:, None].cpu()
    goes_on = torch.zeros(env.n_envs, dtype=torch.bool)
    for name, rows in step.groups.items():
        was, ended = before.groups[name].alive.cpu(), (rows.terminated | rows.truncated).cpu()
        alive = rows.alive.cpu()
        if (ended & ~was).any():
            raise _fail(
                env, "ends once", f"group {name!r}: one not alive before the step ended in {where(ended & ~was)}"
            )
        if (ended & alive & ~done).any():
            raise _fail(env, "dead when ended", f"group {name!r}: ended but alive in {where(ended & alive & ~done)}")
        if (was & ~ended & (done | ~alive)).any():
            raise _fail(env, "ends are told", f"group {name!r}: gone without terminated or truncated")
        if (rows.reward.cpu()[~was] != 0).any():
            raise _fail(env, "no reward for the dead", f"group {name!r}")
        goes_on |= (alive & ~done).any(1)
    if (goes_on == step.done.cpu()).any():
        raise _fail(
            env, "done when nobody is left", f"done is {step.done.tolist()}, somebody is left in {where(goes_on)}"
        )
    _check_somebody(env, step)


def _check_seeds(env: VectorEnv, step: Step, seed: int, ended: Tensor) -> None:
    expected = episode_seeds(seed, ended)
    if not torch.equal(step.episode_seed.cpu(), expected):
        raise _fail(
            env,
            "episode seeds",
            f"({seed} + episode * {env.n_envs} + copy) mod {SEED_SPAN} for episodes {ended.tolist()} is "
            f"{expected.tolist()}; found {step.episode_seed.tolist()}",
        )


def _check_labels(env: VectorEnv) -> None:
    told, labels = {label.name: label for label in env.spec.labels}, env.labels()
    if set(told) != set(labels):
        raise _fail(env, "labels", f"the spec has {sorted(told)}, labels() gives {sorted(labels)}")
    for name, label in told.items():
        shape = (env.n_envs,) if label.group is None else (env.n_envs, env.spec.group(label.group).n_agents)
        _check_tensor(env, f"label {name}", labels[name], shape, torch.int64 if label.classes else torch.float32)
    time_step = env.label_state()
    later = {} if time_step is None else env.labels_of(time_step)
    for name, value in later.items():
        if name not in labels or not torch.equal(value, labels[name]):
            raise _fail(env, "labels", f"labels_of(label_state()) tells another {name!r} than labels()")


def _check_distinct(env: VectorEnv, played: _Played) -> None:
    """No two copies go the same way, under different seeds and different actions, unless nothing ever changes."""
    changes = any(differ(played.steps[0], step).any() for step in played.steps)
    for first in range(env.n_envs):
        for second in range(first + 1, env.n_envs):
            if changes and not any(copies_differ(step, first, second) for step in played.steps):
                raise _fail(env, "distinct copies", f"copies {first} and {second} never differed")


def _check_final(env: VectorEnv, played: _Played) -> None:
    """What was seen last is not what the next episode starts with, unless nothing else is ever seen.

    A group of which nobody stays to the end of any episode is not judged.
    """
    for name in env.spec.group_names:
        kept, stayed, first = False, False, played.steps[0].groups[name].observation
        changes = any(not torch.equal(step.groups[name].observation, first) for step in played.steps)
        for step in played.steps:
            rows = step.groups[name]
            ended = (rows.terminated | rows.truncated) & step.done[:, None]
            stayed |= bool(ended.any())
            kept |= bool((any_of_agent(rows.final_observation != rows.observation) & ended).any())
        if changes and stayed and not kept:
            raise _fail(env, "final observations", f"group {name!r}: always those that the next episode starts with")


def _check_again(env: VectorEnv, played: _Played, seed: int, who: str) -> None:
    """The same seed and actions give the same, whatever stands in the rows of those who do not act."""
    step = env.reset(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    for number, expected in enumerate(played.steps):
        if number:
            others = random_actions(env, step, generator)
            actions = played.actions[number - 1]
            step = env.step({name: mixed(actions[name], others[name], step.groups[name].acting) for name in actions})
        if (copies := differ(step, expected)).any():
            raise _fail(env, "determinism", f"{who}, gave another step {number} in {where(copies)} for seed {seed}")


def _check_seeds_alone(env: VectorEnv, seed: int) -> None:
    """An episode is its seed's: copy 1 under one seed starts as copy 0 does under the next."""
    second = [tensor[1].clone() for tensor in valid(env.reset(seed))]
    first = [tensor[0] for tensor in valid(env.reset(seed + 1))]
    if not all(map(torch.equal, first, second)):
        raise _fail(env, "distinct copies", f"the episode of seed {seed + 1} starts differently in copies 0 and 1")


def _check_saved_state(env: VectorEnv, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    step = env.reset(seed)
    saved = env.state_dict()
    if saved is None:
        return
    saved = {name: value.clone() for name, value in saved.items()}
    actions = [random_actions(env, step, generator)]
    expected = cloned(env.step(actions[0]))
    env.load_state_dict(saved)
    if differ(env.step(actions[0]), expected).any():
        raise _fail(env, "saved state", "the step after load_state_dict is not the one after state_dict")


def _check_extremes(env: VectorEnv, seed: int) -> None:
    """The largest and the smallest action can be taken, unless a mask forbids them."""
    for largest in (False, True):
        step = env.reset(seed)
        drawn = random_actions(env, step, torch.Generator().manual_seed(seed))
        for group in env.spec.groups:
            if step.groups[group.name].action_mask is None:
                spec, actions = group.action, drawn[group.name]
                if spec.kind == "continuous":
                    actions[...] = torch.tensor(spec.high if largest else spec.low, device=actions.device)
                else:
                    choices = torch.tensor(spec.n if spec.shape else spec.n[0], device=actions.device)
                    actions[...] = (choices - 1) * int(largest)
        try:
            env.step(drawn)
        except Exception as error:
            raise _fail(
                env, "action bounds", f"the {'largest' if largest else 'smallest'} action raised {error!r}"
            ) from error
