"""The contract of VectorEnv, as a check that users can run on their own environments.

check_vector_env(lambda n_envs: MyConfig().build(n_envs))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from marlnb.envs.steps import (
    addresses,
    any_per_agent,
    clone_step,
    describe_envs,
    differ,
    envs_differ,
    has_choice,
    random_actions,
    valid,
    where_acting,
)
from marlnb.envs.tensor.purity import check_purity
from marlnb.envs.tensor.synchronisation import check_synchronisation
from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv
from marlnb.envs.vector import Step, VectorEnv, episode_seeds
from marlnb.errors import EnvError
from marlnb.specs import SEED_SPAN, GroupSpec

N_ENVS = 3


def check_vector_env(
    build: Callable[[int], VectorEnv], *, episodes: int = 2, seed: int = 0, max_steps: int = 3000
) -> None:
    """Builds, plays and closes an environment, and raises at the first clause of the contract that it violates.

    For a batched environment (`TensorEnv`, MPE, games) it also raises at a line that would make a GPU wait.

    Args:
        build: returns a new VectorEnv with that many envs; called several times.
        episodes: how many episodes env 0 must finish with random actions.
        seed: of environments and actions.
        max_steps: within how many steps.
    Raises:
        EnvError: names the clause, or the line, and says what was found.
    """
    with build(N_ENVS) as env:
        if env.restarts_by_mask is not None:
            check_synchronisation(env, seed=seed)
        if isinstance(env, TensorVectorEnv) and not env.rules.writes_state:
            check_purity(env, seed=seed)
        played = _play(env, episodes, seed, max_steps)
        _check_determinism(env, played, seed, "the same environment, reset")
        _check_independence(env, played, seed)
        _check_saved_state(env, seed)
        _check_extremes(env, seed)
    env.close()
    with build(N_ENVS) as env:
        _check_determinism(env, played, seed, "a second environment, built the same way")
        _check_seeds_alone(env, seed)


def _fail(env: VectorEnv, clause: str, problem: str) -> EnvError:
    return EnvError(f"{env.spec.name} violates the contract of VectorEnv, clause {clause!r}: {problem}")


class _Rollout:
    """A played rollout: a clone of every step, and the actions between them."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.actions: list[dict[str, Tensor]] = []


def _play(env: VectorEnv, episodes: int, seed: int, max_steps: int) -> _Rollout:
    """Plays random actions, and checks each step against the previous one."""
    if env.n_envs != N_ENVS:
        raise _fail(env, "number of envs", f"requested {N_ENVS}, n_envs is {env.n_envs}")
    generator, played = torch.Generator().manual_seed(seed), _Rollout()
    ended, length = torch.zeros(N_ENVS, dtype=torch.int64), torch.zeros(N_ENVS, dtype=torch.int64)
    step = env.reset(seed)
    first_addresses = addresses(step)
    _check_form(env, step)
    _check_start(env, step)
    _check_seeds(env, step, seed, ended)
    played.steps.append(clone_step(step))
    while int(ended[0]) < episodes:
        if len(played.actions) >= max_steps:
            raise _fail(env, "episodes end", f"env 0 ended {int(ended[0])} of {episodes} in {max_steps} steps")
        played.actions.append(random_actions(env, step, generator))
        passed = {name: action.clone() for name, action in played.actions[-1].items()}
        step = env.step(passed)
        if not all(torch.equal(passed[name], action) for name, action in played.actions[-1].items()):
            raise _fail(env, "actions unchanged", "step wrote to the actions that it was passed")
        if addresses(step) != first_addresses:
            raise _fail(env, "buffers reused", "a tensor of this step has another address than in the first step")
        _check_form(env, step)
        _check_transition(env, played.steps[-1], step)
        ended += step.done.cpu()
        length = _check_length(env, step, length)
        _check_seeds(env, step, seed, ended)
        _check_labels(env)
        played.steps.append(clone_step(step))
    _check_distinct(env, played)
    _check_final(env, played)
    return played


def _expected(group: GroupSpec, n_envs: int) -> Iterator[tuple[str, tuple[int, ...], torch.dtype]]:
    rows = (n_envs, group.n_agents)
    observation = (*rows, *group.observation.shape)
    dtype = getattr(torch, group.observation.dtype)
    yield from (
        ("observation", observation, dtype),
        ("final_observation", observation, dtype),
        ("reward", rows, torch.float32),
    )
    yield from ((flag, rows, torch.bool) for flag in ("alive", "acting", "terminated", "truncated"))
    if group.has_action_mask:
        yield from ((name, (*rows, group.action.n_logits), torch.bool) for name in ("action_mask", "final_action_mask"))


def _check_form(env: VectorEnv, step: Step) -> None:
    """Shapes, dtypes and devices match the spec; no NaN; only living agents act."""
    if tuple(step.groups) != env.spec.group_names:
        raise _fail(env, "groups", f"the spec has {env.spec.group_names}, the step has {tuple(step.groups)}")
    for group in env.spec.groups:
        for name, shape, dtype in _expected(group, env.n_envs):
            _check_tensor(env, f"{group.name}.{name}", getattr(step.groups[group.name], name), shape, dtype)
        rows = step.groups[group.name]
        if not group.has_action_mask and not (rows.action_mask is None is rows.final_action_mask):
            raise _fail(env, "action masks", f"group {group.name!r} has one, but its spec says has_action_mask=False")
        if (rows.acting & ~rows.alive).any():
            raise _fail(
                env, "acting implies alive", f"group {group.name!r}: {describe_envs(rows.acting & ~rows.alive)}"
            )
        waits = rows.alive & ~rows.acting
        if env.spec.simultaneous and not group.has_action_mask and waits.any():  # a mask may allow nothing
            raise _fail(
                env,
                "simultaneous actions",
                f"group {group.name!r}: alive but not acting in {describe_envs(waits)}, though its spec says "
                "simultaneous=True; if agents wait for one another, it must be False",
            )
        if (any_per_agent(rows.observation != 0) & ~rows.alive).any():
            raise _fail(
                env, "zero rows for the dead", f"group {group.name!r} has observations of agents that are not alive"
            )
        if rows.action_mask is not None and (~has_choice(rows.action_mask, group.action) & rows.acting).any():
            raise _fail(env, "action masks", f"an acting agent of group {group.name!r} has no allowed choice")
        final_mask = rows.final_action_mask
        if final_mask is not None and (~has_choice(final_mask, group.action) & rows.truncated).any():
            raise _fail(
                env,
                "final action masks",
                f"a truncated agent of group {group.name!r} has no allowed choice in final_action_mask",
            )
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
    """After `reset` there is no transition yet, and some agent is alive."""
    for name, group in step.groups.items():
        for flag in ("reward", "terminated", "truncated"):
            if getattr(group, flag).any():
                raise _fail(env, "no transition after reset", f"{name}.{flag} is not zero")
    if step.done.any():
        raise _fail(env, "no transition after reset", f"done is {step.done.tolist()}")
    _check_some_agent_alive(env, step)


def _check_some_agent_alive(env: VectorEnv, step: Step) -> None:
    alive = torch.cat([group.alive for group in step.groups.values()], 1).any(1)
    if not alive.all():
        raise _fail(env, "reset at the end", f"no agent is alive in {describe_envs(~alive)}")


def _check_transition(env: VectorEnv, before: Step, step: Step) -> None:
    """Agents that ended were alive and are not any more; the others stay; an env is done when no agent is left."""
    done = step.done[:, None].cpu()
    continues = torch.zeros(env.n_envs, dtype=torch.bool)
    for name, rows in step.groups.items():
        was_alive, ended = before.groups[name].alive.cpu(), (rows.terminated | rows.truncated).cpu()
        alive = rows.alive.cpu()
        if (ended & ~was_alive).any():
            raise _fail(
                env,
                "ends once",
                f"group {name!r}: an agent ended that was not alive before, in {describe_envs(ended & ~was_alive)}",
            )
        if (ended & alive & ~done).any():
            raise _fail(
                env, "dead when ended", f"group {name!r}: ended but alive in {describe_envs(ended & alive & ~done)}"
            )
        if (was_alive & ~ended & (done | ~alive)).any():
            raise _fail(
                env, "ends are reported", f"group {name!r}: not alive any more, without terminated or truncated"
            )
        if (rows.reward.cpu()[~was_alive] != 0).any():
            raise _fail(env, "no reward for the dead", f"group {name!r}")
        continues |= (alive & ~done).any(1)
    if (continues == step.done.cpu()).any():
        raise _fail(
            env,
            "done when no agent is left",
            f"done is {step.done.tolist()}, agents are left in {describe_envs(continues)}",
        )
    _check_some_agent_alive(env, step)


def _check_length(env: VectorEnv, step: Step, length: Tensor) -> Tensor:
    """Returns `[env]`: how many steps each episode has had, which may be at most `max_steps`."""
    length, limit = length + 1, env.spec.max_steps
    if limit is not None and (late := ~step.done.cpu() & (length >= limit)).any():
        raise _fail(
            env, "max_steps", f"its spec says {limit}, but an episode goes beyond that in {describe_envs(late)}"
        )
    return length.where(~step.done.cpu(), 0)


def _check_seeds(env: VectorEnv, step: Step, seed: int, ended: Tensor) -> None:
    expected = episode_seeds(seed, ended)
    if not torch.equal(step.episode_seed.cpu(), expected):
        raise _fail(
            env,
            "episode seeds",
            f"({seed} + episode * {env.n_envs} + env index) mod {SEED_SPAN} for episodes {ended.tolist()} is "
            f"{expected.tolist()}; found {step.episode_seed.tolist()}",
        )


def _check_labels(env: VectorEnv) -> None:
    specs, labels = {label.name: label for label in env.spec.labels}, env.labels()
    if set(specs) != set(labels):
        raise _fail(env, "labels", f"the spec has {sorted(specs)}, labels() gives {sorted(labels)}")
    for name, label in specs.items():
        shape = (env.n_envs,) if label.group is None else (env.n_envs, env.spec.group(label.group).n_agents)
        _check_tensor(env, f"label {name}", labels[name], shape, torch.int64 if label.classes else torch.float32)
        try:
            label.check_classes(labels[name])
        except EnvError as error:
            raise _fail(env, "labels", str(error)) from None
    state = env.label_state()
    later = {} if state is None else env.labels_of(state)
    for name, value in later.items():
        if name not in labels or not torch.equal(value, labels[name]):
            raise _fail(env, "labels", f"labels_of(label_state()) and labels() differ in {name!r}")


def _check_distinct(env: VectorEnv, played: _Rollout) -> None:
    """With different seeds and actions, any two envs differ at some step, unless nothing ever changes."""
    changes = any(differ(played.steps[0], step).any() for step in played.steps)
    for first in range(env.n_envs):
        for second in range(first + 1, env.n_envs):
            if changes and not any(envs_differ(step, first, second) for step in played.steps):
                raise _fail(env, "distinct envs", f"envs {first} and {second} never differed")


def _check_final(env: VectorEnv, played: _Rollout) -> None:
    """Final observations are not those of the next episode's start, unless observations never change.

    A group whose agents never stay until the end of an episode is not checked.
    """
    for name in env.spec.group_names:
        differs, stayed, first = False, False, played.steps[0].groups[name].observation
        changes = any(not torch.equal(step.groups[name].observation, first) for step in played.steps)
        for step in played.steps:
            rows = step.groups[name]
            ended = (rows.terminated | rows.truncated) & step.done[:, None]
            stayed |= bool(ended.any())
            differs |= bool((any_per_agent(rows.final_observation != rows.observation) & ended).any())
        if changes and stayed and not differs:
            raise _fail(
                env,
                "final observations",
                f"group {name!r}: they always equal the first observations of the next episode",
            )


def _check_determinism(env: VectorEnv, played: _Rollout, seed: int, subject: str) -> None:
    """The same seed and actions give the same steps, whatever actions agents have that do not act."""

    def replace_unused(step: Step, actions: Tensor, others: Tensor, group: str) -> Tensor:
        return where_acting(actions, others, step.groups[group].acting)

    for number, different in _replay(env, played, seed, replace_unused):
        if different.any():
            envs = describe_envs(different)
            raise _fail(env, "determinism", f"{subject}, returned a different step {number} in {envs} for seed {seed}")


def _check_independence(env: VectorEnv, played: _Rollout, seed: int) -> None:
    """The steps of an env depend only on its own actions."""

    def replace_those_of_other_envs(step: Step, actions: Tensor, others: Tensor, group: str) -> Tensor:
        return torch.cat([actions[:1], others[1:]])

    for number, different in _replay(env, played, seed, replace_those_of_other_envs):
        if different[0]:
            raise _fail(env, "independent envs", f"step {number} of env 0 changed with the actions in other envs")


def _replay(
    env: VectorEnv, played: _Rollout, seed: int, choose: Callable[[Step, Tensor, Tensor, str], Tensor]
) -> Iterator[tuple[int, Tensor]]:
    """Each step's number, and `[env]` bool: where it is not the played one.

    `choose` picks the actions of a group from those that were played and from other random ones.
    """
    step = env.reset(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    for number, expected in enumerate(played.steps):
        if number:
            others, actions = random_actions(env, step, generator), played.actions[number - 1]
            step = env.step({name: choose(step, actions[name], others[name], name) for name in actions})
        yield number, differ(step, expected)


def _check_seeds_alone(env: VectorEnv, seed: int) -> None:
    """An episode depends only on its seed: env 1 with one seed starts like env 0 with the next seed."""
    second = [tensor[1].clone() for tensor in valid(env.reset(seed))]
    first = [tensor[0].clone() for tensor in valid(env.reset(seed + 1))]
    if not all(map(torch.equal, first, second)):
        raise _fail(env, "distinct envs", f"the episode of seed {seed + 1} starts differently in envs 0 and 1")
    if env.resets_each:
        step = env.reset_each(torch.full((env.n_envs,), seed + 1))
        if not all(torch.equal(now[k], then) for now, then in zip(valid(step), first) for k in range(env.n_envs)):
            raise _fail(env, "distinct envs", f"reset_each with the seed {seed + 1} starts other episodes than reset")


def _check_saved_state(env: VectorEnv, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    step = env.reset(seed)
    saved = env.state_dict()
    if saved is None:
        return
    saved = {name: value.clone() for name, value in saved.items()}
    actions = [random_actions(env, step, generator)]
    expected = clone_step(env.step(actions[0]))
    env.load_state_dict(saved)
    if differ(env.step(actions[0]), expected).any():
        raise _fail(env, "saved state", "the step after load_state_dict is not the one after state_dict")


def _check_extremes(env: VectorEnv, seed: int) -> None:
    """The largest and the smallest action are accepted, unless a mask forbids them."""
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
