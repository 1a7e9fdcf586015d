"""PettingZoo's environments as VectorEnvs, against a plain loop over their own parallel_env."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

from marlnb.codec import from_json, to_json
from marlnb.config import ENVIRONMENTS, EnvConfig
from marlnb.envs.custom import pettingzoo_vector_env
from marlnb.envs.pettingzoo import CustomConfig, PettingZooConfig, installed
from marlnb.envs.vector import VectorEnv
from marlnb.errors import ConfigError, EnvError
from tests.envs import sample_envs

SCRIPTED = "tests.envs.sample_envs:Scripted"


def config(name: str, **options: Any) -> PettingZooConfig:
    kind = ENVIRONMENTS.get(f"pettingzoo/{name}")
    made = kind(**options)
    assert isinstance(made, PettingZooConfig)
    return made


def drawn(env: VectorEnv, generator: torch.Generator) -> dict[str, torch.Tensor]:
    actions = {}
    for group in env.spec.groups:
        rows, spec = (env.n_envs, group.n_agents), group.action
        if spec.kind == "continuous":
            low, high = torch.tensor(spec.low), torch.tensor(spec.high)
            actions[group.name] = low + (high - low) * torch.rand(*rows, len(spec.low), generator=generator)
        else:
            actions[group.name] = torch.randint(spec.n[0], rows, generator=generator)
    return actions


def stock(name: str, **kwargs: Any) -> Any:
    module, _, attribute = installed()[name].partition(":")
    return getattr(importlib.import_module(module), attribute)(**kwargs)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("name", "kwargs", "n_steps"),
    [
        ("multiwalker", {"max_cycles": 60}, 120),
        ("multiwalker", {"terminate_on_fall": False, "max_cycles": 90}, 120),
        ("simple_spread", {}, 60),
        ("simple_speaker_listener", {"continuous_actions": True}, 60),
        ("knights_archers_zombies", {"spawn_delay": 1, "max_cycles": 150}, 160),
    ],
)
def test_equals_a_loop_over_parallel_env(name: str, kwargs: dict[str, Any], n_steps: int, workers: int) -> None:
    n_envs, seed = 3, 11
    copies = [stock(name, **kwargs) for _ in range(n_envs)]
    episodes = [0] * n_envs
    generator = torch.Generator().manual_seed(0)
    deaths = 0
    with config(name, kwargs=kwargs, workers=workers).build(n_envs) as env:
        step = env.reset(seed)
        seen = [copy.reset(seed=seed + b)[0] for b, copy in enumerate(copies)]
        for _ in range(n_steps):
            actions = drawn(env, generator)
            step = env.step(actions)
            for b, copy in enumerate(copies):
                chosen = {
                    agent: actions[group.name][b, i].numpy()
                    if group.action.kind == "continuous"
                    else int(actions[group.name][b, i])
                    for group in env.spec.groups
                    for i, agent in enumerate(group.agents)
                    if agent in copy.agents
                }
                observations, rewards, terminated, truncated, _ = copy.step(chosen)
                done = not copy.agents
                deaths += len(chosen) > len(copy.agents) > 0
                if done:
                    episodes[b] += 1
                    if name == "knights_archers_zombies":
                        copy = copies[b] = stock(name, **kwargs)  # its reset leaves the time to the next zombie running
                    seen[b] = copy.reset(seed=seed + episodes[b] * n_envs + b)[0]
                else:
                    seen[b] = {agent: observations[agent] for agent in copy.agents}
                assert bool(step.done[b]) == done
                assert int(step.episode_seed[b]) == seed + episodes[b] * n_envs + b
                for group in env.spec.groups:
                    rows = step.groups[group.name]
                    for i, agent in enumerate(group.agents):
                        assert bool(rows.alive[b, i]) == bool(rows.acting[b, i]) == (agent in copy.agents)
                        expected = np.asarray(seen[b].get(agent, np.zeros(group.observation.shape)), np.float32)
                        np.testing.assert_array_equal(rows.observation[b, i].numpy(), expected)
                        assert float(rows.reward[b, i]) == np.float32(rewards[agent] if agent in chosen else 0)
                        assert bool(rows.terminated[b, i]) == bool(terminated.get(agent, False))
                        assert bool(rows.truncated[b, i]) == bool(truncated.get(agent, False))
                        if terminated.get(agent) or truncated.get(agent):
                            last = np.asarray(observations[agent], np.float32)
                            np.testing.assert_array_equal(rows.final_observation[b, i].numpy(), last)
    assert min(episodes) >= 1
    if name == "knights_archers_zombies" or not kwargs.get("terminate_on_fall", True):
        assert deaths > 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("keeps_dead", [False, True])
def test_agents_come_and_go(workers: int, keeps_dead: bool) -> None:
    made = CustomConfig(entry_point=SCRIPTED, kwargs={"keeps_dead": keeps_dead}, workers=workers)
    with made.build(2) as env:
        rows = env.reset(5).groups["a"]
        assert rows.alive.tolist() == [[True, True, False]] * 2
        assert rows.observation[:, 2].abs().sum() == 0
        alive, terminated, truncated, rewards = [], [], [], []
        for _ in range(6):
            step = env.step({"a": torch.zeros(2, 3, dtype=torch.int64)})
            alive.append(rows.alive[1].tolist())
            terminated.append(rows.terminated[1].tolist())
            truncated.append(rows.truncated[1].tolist())
            rewards.append(rows.reward[1].tolist())
            assert not rows.observation[~rows.alive].any()
        T, F = True, False
        assert alive == [[T, T, F], [T, T, T], [F, T, T], [F, T, T], [F, F, T], [T, T, F]]
        assert terminated == [[F, F, F], [F, F, F], [T, F, F], [F, F, F], [F, F, F], [F, F, T]]
        assert truncated == [[F, F, F], [F, F, F], [F, F, F], [F, F, F], [F, T, F], [F, F, F]]
        assert rewards == [[1, 11, 0], [2, 12, 0], [3, 13, 23], [0, 14, 24], [0, 15, 25], [0, 0, 26]]
        assert step.done.tolist() == [True, True]
        assert step.episode_seed.tolist() == [7, 8]
        assert rows.final_observation[1, 2].tolist() == [6, 3, 6]  # the step, number + 1, the ended episode's seed
        assert rows.observation[1, 0].tolist() == [0, 1, 8]
        env.step({"a": torch.zeros(2, 3, dtype=torch.int64)})
        assert not step.done.any() and not rows.terminated.any() and not rows.truncated.any()


def test_max_steps_truncates_the_remaining_agents() -> None:
    with CustomConfig(entry_point=SCRIPTED, max_steps=4, workers=0).build(1) as env:
        rows = env.reset(0).groups["a"]
        for _ in range(4):
            step = env.step({"a": torch.zeros(1, 3, dtype=torch.int64)})
        assert env.spec.max_steps == 4
        assert step.done.tolist() == [True]
        assert rows.truncated.tolist() == [[False, True, True]] and not rows.terminated.any()
        assert rows.final_observation[0, 1].tolist() == [4, 2, 0]


@pytest.mark.parametrize("where", ["observation", "info"])
def test_action_masks(where: str) -> None:
    with pettingzoo_vector_env(sample_envs.Masked, 1, workers=0, kwargs={"where": where}) as env:
        group = env.spec.groups[0]
        assert group.has_action_mask and group.observation.shape == (3,)
        rows = env.reset(0).groups["a"]
        assert rows.action_mask is not None
        assert rows.action_mask[0].tolist() == [[False, True, True], [True, False, True], [True, True, True]]
        env.step({"a": torch.ones(1, 3, dtype=torch.int64)})
        assert rows.alive[0].tolist() == [True, True, False] and not rows.acting.any() and rows.action_mask.all()
        env.step({"a": torch.full((1, 3), 2)})
        assert rows.acting.all()
        assert rows.action_mask[0].tolist() == [[True, True, False], [False, True, True], [True, False, True]]


def test_masks_that_first_appear_in_a_step() -> None:
    class LateMasks(sample_envs.Masked):
        def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
            observations, infos = super().reset(seed)
            return observations, {agent: {} for agent in infos}

    with pettingzoo_vector_env(LateMasks, 1, workers=0, kwargs={"where": "info"}) as env:
        env.reset(0)
        with pytest.raises(EnvError, match=r"in step 1 .* has an action_mask in its info, but no agent of its group"):
            env.step({"a": torch.ones(1, 3, dtype=torch.int64)})


@pytest.mark.parametrize("where", ["observation", "info"])
def test_the_action_masks_of_a_truncated_episode(where: str) -> None:
    """Those of step 2, not those of the next episode's start; at step 1 no agent has a choice."""
    for max_steps, expected in (
        (2, [[True, True, False], [False, True, True], None]),  # a_2 appears at step 2
        (1, [[True] * 3, [True] * 3, None]),
    ):
        with pettingzoo_vector_env(
            sample_envs.Masked, 1, workers=0, max_steps=max_steps, kwargs={"where": where}
        ) as env:
            rows = env.reset(0).groups["a"]
            for _ in range(max_steps):
                env.step({"a": torch.full((1, 3), 2)})
            assert rows.final_action_mask is not None and rows.action_mask is not None
            assert rows.action_mask[0].tolist() == [[False, True, True], [True, False, True], [True, True, True]]
            for i, mask in enumerate(expected):
                assert bool(rows.truncated[0, i]) == (mask is not None)
                assert mask is None or rows.final_action_mask[0, i].tolist() == mask


@pytest.mark.parametrize(
    "kind", [sample_envs.Drawing, sample_envs.DrawingInSteps, sample_envs.DrawingLater, sample_envs.Scripted]
)
def test_global_generators_are_a_copys_own(kind: type[sample_envs.Scripted]) -> None:
    """The same whether copies share a process or not, and the caller's generators are unchanged."""
    import random

    traces = []
    np.random.seed(3)
    random.seed(3)
    before = np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index,union-attr]
    for workers in (0, 1, 3):
        with pettingzoo_vector_env(kind, 3, workers=workers) as env:
            rows = env.reset(4).groups["a"]
            trace = [rows.observation.clone()]
            trace += [
                env.step({"a": torch.zeros(3, 3, dtype=torch.int64)}).groups["a"].observation.clone() for _ in range(9)
            ]
            traces.append(torch.stack(trace))
    assert torch.equal(traces[0], traces[1]) and torch.equal(traces[0], traces[2])
    assert kind is sample_envs.Scripted or not torch.equal(traces[0][:, 0], traces[0][:, 1])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # type: ignore[index,union-attr]


@pytest.mark.parametrize("kind", [sample_envs.DrawingByTorch, sample_envs.SamplingObservations])
def test_draws_from_torch_and_from_observation_spaces_are_those_of_the_episodes_seed(
    kind: type[sample_envs.Scripted],
) -> None:
    """For any number of envs; the caller's generator is unchanged."""
    episodes, before = [], torch.get_rng_state()
    for n_envs in (1, 3):
        with pettingzoo_vector_env(kind, n_envs, workers=0) as env:
            step, trace = env.reset(4), list[torch.Tensor]()
            while step.episode_seed[0] <= 5:
                trace += step.groups["a"].observation[(step.episode_seed == 5).numpy()].clone()
                step = env.step({"a": torch.zeros(n_envs, 3, dtype=torch.int64)})
            episodes.append(torch.stack(trace))
    assert torch.equal(*episodes) and len(episodes[0]) > 3
    assert torch.equal(torch.get_rng_state(), before)


def test_sets_of_strings_have_one_order_in_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pettingzoo_vector_env(sample_envs.Hashing, 3, workers=3) as env:
        first, *others = env.reset(4).groups["a"].observation
        assert all(torch.equal(first, other) for other in others)


def test_an_episode_that_is_the_first_to_draw_is_that_of_its_seed_for_any_number_of_envs() -> None:
    """Of the seeds 4, 5, ... the second is the first with draws: in a first reset, or in a later one."""
    episodes = []
    for n_envs in (1, 2):
        with pettingzoo_vector_env(sample_envs.DrawingSometimes, n_envs, workers=0) as env:
            step, trace = env.reset(4), []
            while step.episode_seed[-1] <= 5:
                if step.episode_seed[-1] == 5:
                    trace.append(step.groups["a"].observation[-1].clone())
                step = env.step({"a": torch.zeros(n_envs, 3, dtype=torch.int64)})
            episodes.append(torch.stack(trace))
    assert torch.equal(*episodes) and episodes[0][0, 0, 0] > 0


def test_state_and_pictures() -> None:
    with config("simple_spread", state=True, render=True, workers=1).build(2) as env:
        step = env.reset(0)
        assert env.spec.state_shape == (54,) and step.state is not None
        assert torch.equal(step.state, step.groups["agent"].observation.flatten(1))  # mpe2's: all observations
        picture = env.render(1)
        assert picture.shape == (700, 700, 3) and picture.dtype == np.uint8 and picture.std() > 0
        assert not np.array_equal(picture, env.render(0))
        with pytest.raises(EnvError, match="environments 0 to 1; got 2"):
            env.render(2)
    with pytest.raises(EnvError, match="is closed"):
        env.render(0)
    with config("simple_spread", workers=0).build(1) as env:
        with pytest.raises(EnvError, match="render=True"):
            env.render()
    with pytest.raises(EnvError, match="no global state"):
        CustomConfig(entry_point=SCRIPTED, state=True, workers=0).build(1)


def test_pistonball_agents_see_the_ball_move() -> None:
    with config("pistonball", kwargs={"n_pistons": 3}, workers=0).build(1) as env:
        rows = env.reset(0).groups["piston"]
        assert rows.observation.dtype == torch.uint8 and rows.observation.shape == (1, 3, 457, 120, 3)
        first = rows.observation.clone()
        env.step({"piston": torch.ones(1, 3, 1)})
        assert not torch.equal(first, rows.observation)


@pytest.mark.parametrize("workers", [0, 1])
def test_every_nth_pixel_is_that_of_the_whole_image(workers: int) -> None:
    options: dict[str, Any] = {"kwargs": {"n_pistons": 3}}
    with (
        config("pistonball", workers=0, **options).build(2) as whole,
        config("pistonball", workers=workers, pixel_stride=6, **options).build(2) as env,
    ):
        assert env.spec.group("piston").observation.shape == (77, 20, 3)
        rows, images = env.reset(0).groups["piston"], whole.reset(0).groups["piston"]
        for _ in range(3):
            assert torch.equal(rows.observation, images.observation[:, :, ::6, ::6])
            for each in (env, whole):
                each.step({"piston": torch.ones(2, 3, 1)})
    with pytest.raises(
        EnvError, match=r"pixel_stride=6 needs images.*'walker_0' observes Box.*Valid here: pixel_stride=1"
    ):
        config("multiwalker", workers=workers, pixel_stride=6).build(1)


def test_groups() -> None:
    with pytest.raises(EnvError, match=r"'a_0' and 'a_1' of group 'a' have different observation.*groups="):
        pettingzoo_vector_env(sample_envs.Mixed, 1, workers=0)
    groups = {"low": ["a_0"], "middle": ["a_1"], "high": ["a_2"]}
    with pettingzoo_vector_env(sample_envs.Mixed, 1, workers=1, groups=groups) as env:
        assert env.spec.group_names == ("low", "middle", "high")
        assert env.reset(0).groups["high"].observation.shape == (1, 1, 3)
    with pytest.raises(EnvError, match="a_2"):
        pettingzoo_vector_env(sample_envs.Mixed, 1, workers=0, groups={"low": ["a_0", "a_1"]})


def test_wrong_actions_are_refused() -> None:
    with config("multiwalker", workers=0).build(2) as env:
        with pytest.raises(EnvError, match="reset before"):
            env.step({"walker": torch.zeros(2, 3, 4)})
        env.reset(0)
        with pytest.raises(EnvError, match="no actions for group 'walker'; got actions for \\['walkers'\\]"):
            env.step({"walkers": torch.zeros(2, 3, 4)})
        with pytest.raises(EnvError, match=r"float32 of shape \[2, 3, 4\].*\[2, 3\]"):
            env.step({"walker": torch.zeros(2, 3)})
        with pytest.raises(EnvError, match="agent 2 in env 1"):
            env.step({"walker": torch.tensor([[[0.0] * 4] * 3, [[0.0] * 4] * 2 + [[float("nan")] * 4]])})
        with pytest.raises(EnvError, match="is not in"):
            env.step({"walker": torch.full((2, 3, 4), 1.1)})
        env.step({"walker": torch.full((2, 3, 4), 1.000001)})  # rounding, not a mistake
    with CustomConfig(entry_point=SCRIPTED, workers=0).build(1) as env:
        env.reset(0)
        with pytest.raises(EnvError, match=r"action 3 of agent 1 in env 0 is not in \[0, \(3,\)\)"):
            env.step({"a": torch.tensor([[0, 3, 0]])})
        env.step({"a": torch.tensor([[0, 2, -77]])})  # a_2 is not there


def test_what_cannot_be_built_says_why() -> None:
    with pytest.raises(EnvError, match="cannot import 'no_such_module'"):
        CustomConfig(entry_point="no_such_module:make", workers=0).build(1)
    with pytest.raises(EnvError, match=r"no name 'nothing' in tests\.envs\.sample_envs"):
        CustomConfig(entry_point="tests.envs.sample_envs:nothing", workers=1).build(1)
    with pytest.raises(EnvError, match="no keyword argument 'walkers'; did you mean 'n_walkers'"):
        config("multiwalker", kwargs={"walkers": 4}, workers=1).build(1)
    with pytest.raises(EnvError, match=r"a ParallelEnv or AECEnv .* returned int without"):
        pettingzoo_vector_env(int, 1, workers=0)
    with pytest.raises(EnvError, match=r"shape \(1,\); its space says \(3,\)"):
        pettingzoo_vector_env(sample_envs.Broken, 1, workers=0).reset(0)
    with pytest.raises(EnvError, match="at least one env"):
        config("multiwalker").build(0)
    with pytest.raises(ConfigError, match="module:function"):
        CustomConfig(entry_point="my_env.py")
    with pytest.raises(ConfigError, match="workers"):
        config("multiwalker", workers=-2)


@pytest.mark.parametrize("n_agents", [2, 3])  # all of them there, or one not yet
def test_a_shape_that_changes_names_the_agent(n_agents: int) -> None:
    env = pettingzoo_vector_env(lambda: sample_envs.Reshaping(n_agents), 1, workers=0)
    env.reset(0)
    with pytest.raises(EnvError, match=r"agent 'a_0' observed an array of shape \(2,\); its space says \(3,\)"):
        env.step({"a": torch.zeros(1, n_agents, dtype=torch.int64)})


def test_configs_travel_as_json() -> None:
    made = config("multiwalker", kwargs={"n_walkers": 2}, groups={"all": ["walker_0", "walker_1"]}, max_steps=100)
    assert from_json(to_json(made), EnvConfig) == made
    custom = CustomConfig(entry_point=SCRIPTED, workers=0)
    assert from_json(to_json(custom), EnvConfig) == custom


def test_installed_names_are_listed_without_importing_them() -> None:
    names = installed()
    assert names["multiwalker"] == "pettingzoo.sisl.multiwalker.multiwalker:parallel_env"
    assert names["simple_spread"] == "mpe2.simple_spread.simple_spread:parallel_env"
    assert {"knights_archers_zombies", "pistonball", "pursuit", "rps"} <= set(names)


class WithStateOfBytes(sample_envs.Scripted):
    def state(self) -> np.ndarray:
        return np.array([0, 51, 255], np.uint8)


def test_a_state_of_bytes_is_scaled_like_an_image() -> None:
    with pettingzoo_vector_env(WithStateOfBytes, 1, state=True, workers=0) as env:
        state = env.reset(0).state
    assert state is not None
    torch.testing.assert_close(state, torch.tensor([[0.0, 0.2, 1.0]]))
