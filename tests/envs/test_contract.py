"""The contract check passes registered environments, and each of its clauses has been seen to fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from marlnb.config import ENVIRONMENTS
from marlnb.envs.contract import check_vector_env
from marlnb.envs.custom import pettingzoo_vector_env
from marlnb.envs.mpe.rules import MPERules
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import EnvError
from marlnb.specs import LabelSpec
from tests.envs.phases import Phases
from tests.envs.sample_envs import Masked, Scripted

QUICK = [
    *(name for name in ENVIRONMENTS.names() if name.startswith("mpe/")),
    *(f"pettingzoo/{name}" for name in ("simple_spread", "simple_tag", "rps")),
]
LONG: dict[str, dict[str, Any]] = {
    "pettingzoo/multiwalker": {"terminate_on_fall": False},
    "pettingzoo/knights_archers_zombies": {},
    "pettingzoo/pistonball": {"n_pistons": 3},
    "pettingzoo/cooperative_pong": {},
    "pettingzoo/pursuit": {"n_pursuers": 2, "n_evaders": 3},
}


@pytest.mark.parametrize("name", QUICK)
def test_registered_environments(name: str) -> None:
    options = {"workers": 0} if name.startswith("pettingzoo/") else {}
    check_vector_env(lambda n_envs: ENVIRONMENTS.get(name)(**options).build(n_envs))


@pytest.mark.parametrize("name", LONG)
def test_registered_environments_cut_short(name: str) -> None:
    options = {"workers": 0, "max_steps": 6, "kwargs": LONG[name]}
    check_vector_env(lambda n_envs: ENVIRONMENTS.get(name)(**options).build(n_envs))


@pytest.mark.parametrize("options", [{}, {"kwargs": {"keeps_dead": True}}])
def test_agents_that_come_and_go(options: dict[str, Any]) -> None:
    check_vector_env(lambda n_envs: pettingzoo_vector_env(Scripted, n_envs, workers=0, **options))


@pytest.mark.parametrize("where", ["observation", "info"])
def test_action_masks(where: str) -> None:
    check_vector_env(lambda n_envs: pettingzoo_vector_env(Masked, n_envs, workers=0, kwargs={"where": where}))


def test_action_masks_of_a_batched_environment() -> None:
    check_vector_env(Phases(max_steps=4, random_start=True).build)  # it ends in the phase in which it starts
    check_vector_env(Phases(max_steps=4, random_start=True, mortal=True).build)  # a dead agent has no choice


class Spoiled(VectorEnv):
    """A sound environment whose steps are spoiled before they are handed on."""

    def __init__(self, n_envs: int, spoil: Callable[[Spoiled, Step], Any], constructor: type = Scripted) -> None:
        self.env = pettingzoo_vector_env(constructor, n_envs, workers=0)
        self.spec, self.n_envs, self.device = self.env.spec, self.env.n_envs, self.env.device
        self.spoil, self.steps, self.builds = spoil, 0, 0
        self.was_reset = False

    def reset(self, seed: int) -> Step:
        self.seed, self.steps, self.was_reset = seed, 0, True
        step = self.env.reset(seed)
        return self.spoil(self, step) or step

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        self.steps, self.was_reset, self.actions = self.steps + 1, False, actions
        step = self.env.step(actions)
        return self.spoil(self, step) or step

    def close(self) -> None:
        self.env.close()


def rows(step: Step) -> Any:
    return step.groups["a"]


def fill(tensor: Tensor, value: Any) -> None:
    tensor[...] = value


def moved(env: Spoiled, step: Step) -> Step:
    return replace(step, done=step.done.clone())


def reshaped(env: Spoiled, step: Step) -> Step:
    return replace(step, groups={"a": replace(rows(step), reward=rows(step).reward[..., None])})


def other_dtype(env: Spoiled, step: Step) -> Step:
    return replace(step, groups={"a": replace(rows(step), reward=rows(step).reward.double())})


def empty(step: Step) -> None:
    for tensor in (rows(step).alive, rows(step).acting, rows(step).observation):
        tensor.zero_()


def leaves_it_undone(env: Spoiled, step: Step) -> None:
    if step.done.any():
        empty(step)
        step.done.zero_()


def forget_final(env: Spoiled, step: Step) -> None:
    if step.done.any():
        fill(rows(step).final_observation, rows(step).observation)


def kills_silently(env: Spoiled, step: Step) -> None:
    if env.steps == 1:
        rows(step).alive[0, 0] = rows(step).acting[0, 0] = False
        rows(step).observation[0, 0] = 0


def listens_to_the_dead(env: Spoiled, step: Step) -> None:
    if env.steps == 1:
        rows(step).observation[:, 0, 0] += env.actions["a"][:, 2] + 1  # a_2 is not there yet


def drifts(env: Spoiled, step: Step) -> None:
    env.builds += env.was_reset
    if env.was_reset:
        rows(step).observation[0, 0, 0] += env.builds


@pytest.mark.parametrize(
    ("clause", "spoil"),
    [
        ("shapes", reshaped),
        ("dtypes", other_dtype),
        ("no NaN", lambda env, step: fill(rows(step).observation[0, 0, 0], float("nan"))),
        ("groups", lambda env, step: replace(step, groups={"b": rows(step)})),
        ("action masks", lambda env, step: setattr(rows(step), "action_mask", torch.ones(3, 3, 3) > 0)),
        ("acting implies alive", lambda env, step: fill(rows(step).acting, True)),
        ("simultaneous actions", lambda env, step: fill(rows(step).acting[:, 0], False)),
        ("zero rows for the dead", lambda env, step: fill(rows(step).observation, 1.0)),
        ("no transition after reset", lambda env, step: fill(rows(step).reward, 1.0)),
        ("buffers reused", moved),
        ("actions unchanged", lambda env, step: None if env.was_reset else fill(env.actions["a"], 99)),
        ("episode seeds", lambda env, step: fill(step.episode_seed, env.seed)),
        ("ends once", lambda env, step: fill(rows(step).terminated, True) if env.steps == 1 else None),
        ("ends are reported", kills_silently),
        ("done when no agent is left", leaves_it_undone),
        ("reset at the end", lambda env, step: empty(step) if step.done.any() else None),
        ("dead when ended", lambda env, step: fill(rows(step).truncated[:, 0], env.steps == 1)),
        ("no reward for the dead", lambda env, step: fill(rows(step).reward[:, 2], 1.0) if env.steps == 1 else None),
        ("final observations", forget_final),
        ("determinism", listens_to_the_dead),
        ("determinism", drifts),
        ("state", lambda env, step: replace(step, state=torch.zeros(3, 2))),
    ],
)
def test_each_clause_is_seen_to_fail(clause: str, spoil: Callable[[Spoiled, Step], Any]) -> None:
    with pytest.raises(EnvError, match=f"clause '{clause}'"):
        check_vector_env(lambda n_envs: Spoiled(n_envs, spoil))


def test_a_final_action_mask_that_was_not_written_is_detected() -> None:
    def forget(env: Spoiled, step: Step) -> None:
        fill(rows(step).final_action_mask, False)

    with pytest.raises(EnvError, match="clause 'final action masks': a truncated agent of group 'a' has no allowed"):
        check_vector_env(lambda n_envs: Spoiled(n_envs, forget, Masked))
    with pytest.raises(EnvError, match=r"clause 'shapes': a\.final_action_mask should be a tensor"):
        check_vector_env(
            lambda n_envs: Spoiled(n_envs, lambda env, step: setattr(rows(step), "final_action_mask", None), Masked)
        )


class Twins(Spoiled):
    """Copies that are all the first one."""

    def _same(self, step: Step) -> Step:
        seeds = step.episode_seed.clone()
        for tensor in [getattr(rows(step), name) for name in rows(step).__slots__] + [step.done]:
            if tensor is not None:
                tensor[...] = tensor[:1].clone()
        step.episode_seed[...] = seeds
        return step


def test_identical_envs_are_detected() -> None:
    with pytest.raises(EnvError, match="clause 'distinct envs'"):
        check_vector_env(lambda n_envs: Twins(n_envs, Twins._same))  # type: ignore[arg-type]


def test_wrong_episode_seeds_are_detected() -> None:
    def biased(env: Spoiled, step: Step) -> None:
        if env.was_reset:
            rows(step).observation[1, 0, 0] += 0.5

    with pytest.raises(EnvError, match="clause 'distinct envs': the episode of seed 1 starts differently"):
        check_vector_env(lambda n_envs: Spoiled(n_envs, biased))


def test_episodes_without_an_end_are_detected() -> None:
    with pytest.raises(EnvError, match="clause 'episodes end': env 0 ended 0 of 2 in 5 steps"):
        check_vector_env(lambda n_envs: pettingzoo_vector_env(Scripted, n_envs, workers=0), max_steps=5)


def test_an_episode_longer_than_the_spec_says_is_detected() -> None:
    def limited(n_envs: int, max_steps: int) -> VectorEnv:
        env = Spoiled(n_envs, lambda env, step: None)
        env.spec = replace(env.spec, max_steps=max_steps)
        return env

    with pytest.raises(EnvError, match="clause 'max_steps': its spec says 5, but an episode goes beyond"):
        check_vector_env(lambda n_envs: limited(n_envs, 5))
    check_vector_env(lambda n_envs: limited(n_envs, 6))


def test_envs_that_share_something_are_detected() -> None:
    def average(env: Spoiled, step: Step) -> None:
        if not env.was_reset:
            rows(step).reward[:, 0] += env.actions["a"][:, 0].float().mean() * (rows(step).reward[:, 0] != 0)

    with pytest.raises(EnvError, match="clause 'independent envs': step 1 of env 0 changed with the actions in other"):
        check_vector_env(lambda n_envs: Spoiled(n_envs, average))


def test_a_wrong_number_of_envs_is_detected() -> None:
    with pytest.raises(EnvError, match="clause 'number of envs'"):
        check_vector_env(lambda n_envs: pettingzoo_vector_env(Scripted, n_envs + 1, workers=0))


def test_labels_that_the_spec_does_not_declare_are_detected() -> None:
    def labelled(n_envs: int) -> VectorEnv:
        env = Spoiled(n_envs, lambda env, step: None)
        env.spec = replace(env.spec, labels=(LabelSpec("goal"),))
        return env

    with pytest.raises(EnvError, match=r"clause 'labels': the spec has \['goal'\]"):
        check_vector_env(labelled)


@pytest.mark.parametrize("index", [-1, 2])
def test_a_label_that_is_not_the_index_of_a_class_is_detected(index: int) -> None:
    def labelled(n_envs: int) -> VectorEnv:
        env = Spoiled(n_envs, lambda env, step: None)
        env.spec = replace(env.spec, labels=(LabelSpec("phase", None, ("first", "second")),))
        env.labels = lambda: {"phase": torch.full((n_envs,), index)}  # type: ignore[method-assign]
        return env

    message = rf"clause 'labels': .*'phase' is {index}; valid: 0 to 1, the index of one of \['first', 'second'\]"
    with pytest.raises(EnvError, match=message):
        check_vector_env(labelled)


def test_different_labels_computed_later_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(rules: MPERules, label_states: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: value + 1 for name, value in labels_of(rules, label_states).items()}

    labels_of = MPERules.labels_of
    monkeypatch.setattr(MPERules, "labels_of", shifted)
    with pytest.raises(EnvError, match=r"clause 'labels': labels_of\(label_state\(\)\) and labels\(\) differ in"):
        check_vector_env(SimpleSpreadConfig().build)


def test_actions_that_cannot_be_taken_are_detected() -> None:
    def refuses(env: Spoiled, step: Step) -> None:
        if not env.was_reset and env.steps == 1 and (env.actions["a"] == 2).all():
            raise ValueError("no such action")

    with pytest.raises(EnvError, match="clause 'action bounds': the largest action raised"):
        check_vector_env(lambda n_envs: Spoiled(n_envs, refuses))


def test_a_state_that_does_not_restore_is_detected() -> None:
    class Forgetful(Spoiled):
        def state_dict(self) -> dict[str, Tensor]:
            return {"nothing": torch.zeros(1)}

        def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
            return self.env._shared  # type: ignore[attr-defined, no-any-return]

    with pytest.raises(EnvError, match="clause 'saved state'"):
        check_vector_env(lambda n_envs: Forgetful(n_envs, lambda env, step: None))
