"""Rules as a VectorEnv: episodes that depend on their seed alone, restarts, saved states, and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.algorithms.configs.ddpg import MADDPGConfig, MATD3Config
from marlnb.algorithms.configs.sac import MASACConfig
from marlnb.algorithms.configs.value_decomposition import IQLConfig, QMIXConfig, VDNConfig
from marlnb.config import LearnerContext
from marlnb.envs.steps import clone_step, differ, random_actions
from marlnb.envs.tensor.memory import free_bytes
from marlnb.envs.tensor.rules import ByGroup, State
from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv
from marlnb.errors import ConfigError, EnvBuildError, EnvError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.training.collect.rollout import Collector
from tests.envs.phases import Phases
from tests.examples.batched_environment import Chase


@dataclass(frozen=True)
class Drifting(Chase):
    """The hider is pushed at random; the seekers die in their fifth step."""

    name: ClassVar[str] = "test/drifting"

    def step(self, state: Any, action: Any, draw: Any) -> Any:
        pushed = state["position"] + 0.1 * (draw.uniform(self.n_seekers + 1, 2) - 0.5)
        return super().step({**state, "position": pushed}, action, draw)

    def alive(self, state: Any) -> Any:
        return {"seeker": (state["time"] < 5)[:, None].expand(-1, self.n_seekers)}


@dataclass(frozen=True)
class Alternating(mnb.TensorEnv):
    """Two players move in turn: the mover earns 1, the other 10."""

    name: ClassVar[str] = "test/alternating"

    def groups(self) -> Any:
        return [mnb.agent_group("player", 2, observes=("my_turn", "me"), acts=2)]

    def start(self, draw: Any) -> Any:
        return {"nothing": torch.zeros(draw.n_envs, 1)}

    def acting(self, state: Any) -> Any:
        return {"player": state["time"][:, None] % 2 == torch.arange(2)}

    def step(self, state: Any, action: Any, draw: Any) -> Any:
        return {"nothing": state["nothing"]}, {"player": torch.where(self.acting(state)["player"], 1.0, 10.0)}

    def observe(self, state: Any) -> Any:
        turn = self.acting(state)["player"].float()
        return {"player": torch.stack((turn, torch.arange(2.0).expand_as(turn)), -1)}


def play(env: TensorVectorEnv, steps: int, seed: int = 0) -> list[Any]:
    step = env.reset(seed)
    generator = torch.Generator().manual_seed(1)
    played = [clone_step(step)]
    for _ in range(steps):
        played.append(clone_step(env.step(random_actions(env, step, generator))))
    return played


def test_agents_that_die_pass_the_contract() -> None:
    mnb.check_vector_env(Drifting(max_steps=9).build)


def test_who_acts_makes_it_turn_based() -> None:
    """A turn earns 1 + 10, what the player gets until its next turn. In six steps each player ends two turns."""
    env, model = Alternating().build(3), MLPConfig(hidden=(4,))
    assert not env.spec.simultaneous and Chase().spec.simultaneous
    context = LearnerContext(env.spec.group("player"), env.spec, model, model, 3, 6)
    for config in (VDNConfig(), QMIXConfig(), MADDPGConfig(), MATD3Config(), MASACConfig()):
        with pytest.raises(ConfigError, match="agents wait for their turns"):
            config.build(context)
    learner = IQLConfig(standardise_rewards=False).build(context)
    collector = Collector(env, {"player": learner.policy}, 6, generator=torch.Generator().manual_seed(0))
    collector.reset(0)
    learner.store(collector.collect())
    sample = learner.replay.sample(200)
    acting, reward = sample["player", "acting"], sample["next", "player", "reward"].squeeze(-1)
    assert (reward == 11.0 * acting).all() and acting.any(0).all()
    assert (sample["next", "player", "observation"][acting][:, 0] == 1).all()  # next is the player's own turn


def test_restarts_by_mask_equal_restarts_by_branch() -> None:
    by_branch, by_mask = Drifting(max_steps=7).build(16), Drifting(max_steps=7).build(16)
    by_mask.restarts_by_mask = True
    for expected, got in zip(play(by_branch, 40), play(by_mask, 40)):
        assert not differ(expected, got).any()


@dataclass(frozen=True)
class Ending(Alternating):
    """The rules end an episode at its time limit."""

    name: ClassVar[str] = "test/ending"
    max_steps: int = 2

    def terminated(self, state: Any) -> Any:
        return state["time"] >= 2


@pytest.mark.parametrize("by_mask", [False, True])
def test_an_episode_that_the_rules_end_at_the_time_limit_is_not_truncated(by_mask: bool) -> None:
    env = Ending().build(3)
    env.restarts_by_mask = by_mask
    for step in play(env, 4)[2::2]:
        for rows in step.groups.values():
            assert rows.terminated.all() and not rows.truncated.any()


class PhasesInTurn(Phases):
    """Agent k acts in phase k."""

    name = "test/phases_in_turn"

    def acting(self, state: State) -> ByGroup:
        return {"agent": torch.stack([state["phase"] == 0, state["phase"] == 1], -1)}


def test_a_game_without_a_name_is_an_error() -> None:
    class Nameless(mnb.TensorEnv):
        start = step = observe = groups = None  # type: ignore[assignment]

    with pytest.raises(ConfigError, match=r"Nameless has no name: register it, as with @mnb.environment"):
        Nameless()


def test_a_time_of_its_own_in_the_state_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of steps would replace it."""
    monkeypatch.setattr(Alternating, "start", lambda self, draw: {"time": torch.full((draw.n_envs,), 1.5)})
    with pytest.raises(EnvError, match=r"start returned state\['time'\], which is the number of steps of the episode"):
        Alternating().build(2).reset(0)


class Unmasked(Phases):
    """Its group has no action mask."""

    name = "test/unmasked"

    def groups(self) -> Any:
        return [mnb.agent_group("agent", 2, observes=2, acts=2)]


class Maskless(Phases):
    """Its group has an action mask, which it does not return."""

    name = "test/maskless"

    def action_mask(self, state: State) -> ByGroup:
        return {}


class Narrow(Phases):
    """Its action mask has one choice of two."""

    name = "test/narrow"

    def action_mask(self, state: State) -> ByGroup:
        return {"agent": super().action_mask(state)["agent"][..., :1]}


@pytest.mark.parametrize(
    ("game", "message"),
    [
        (Unmasked, "a mask for group 'agent', whose spec has none; pass action_mask=True to mnb.agent_group"),
        (Maskless, r"action_mask must have a tensor for each of \['agent'\]; got \[\]"),
        (Narrow, r"action_mask of group 'agent' must have the shape \[2, 2, 2\].*; got \[2, 2, 1\]"),
    ],
)
def test_action_masks_that_differ_from_the_groups_are_errors(game: type[Phases], message: str) -> None:
    with pytest.raises(EnvError, match=message):
        game().build(2).reset(0)


@pytest.mark.parametrize("game", [Phases, Unmasked])
@pytest.mark.parametrize("masks", [None, [True]])
def test_action_masks_must_be_by_group(game: type[Phases], masks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(game, "action_mask", lambda self, state: masks)
    kind = type(masks).__name__
    with pytest.raises(EnvError, match=rf"action_mask must return tensors by group, \{{\}} without .*; got {kind}$"):
        game().build(2).reset(0)


@pytest.mark.parametrize("source", ["action_mask", "observe"])
@pytest.mark.parametrize("kind", [torch.Tensor.tolist, torch.Tensor.numpy])
def test_what_rules_return_must_be_tensors(source: str, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    of_phases = getattr(Phases, source)
    monkeypatch.setattr(Phases, source, lambda self, state: {"agent": kind(of_phases(self, state)["agent"])})
    with pytest.raises(EnvError, match=rf"{source} of group 'agent' must be a tensor; got (list|ndarray)"):
        Phases().build(2).reset(0)


@pytest.mark.parametrize("source", ["alive", "acting"])
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (None, r"must return tensors by group, \{\} for all agents; got NoneType"),
        ({"agents": torch.ones(2, 2, dtype=torch.bool)}, r"returned group 'agents'; the groups are \['agent'\]"),
        (
            {"agent": torch.ones(2, dtype=torch.bool)},
            r"of group 'agent' must be .* \[2, 2\]: env, agent; got \[2\] bool",
        ),
        ({"agent": torch.ones(2, 2)}, r".* must be a bool tensor of the shape \[2, 2\].*; got \[2, 2\] float32 on cpu"),
        ({"agent": np.ones((2, 2), bool)}, ".* must be a bool tensor .*; got ndarray"),
    ],
)
def test_who_lives_and_who_acts_are_flags_by_group(
    source: str, flags: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Phases, source, lambda self, state: flags)
    monkeypatch.setattr(Phases, "action_mask", lambda self, state: {"agent": torch.ones(2, 2, 2, dtype=torch.bool)})
    with pytest.raises(EnvError, match=f"test/phases: {source} {message}"):
        Phases().build(2).reset(0)


@pytest.mark.parametrize(
    ("terminated", "got"),
    [
        (torch.ones(2, 2, dtype=torch.bool), r"\[2, 2\] bool on cpu"),
        (torch.ones(2), r"\[2\] float32 on cpu"),
        (np.ones(2, bool), "ndarray"),
        (False, "bool"),
    ],
)
def test_what_terminates_is_a_flag_by_env(terminated: Any, got: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Phases, "terminated", lambda self, state: terminated)
    env = Phases().build(2)
    env.reset(0)
    with pytest.raises(EnvError, match=rf"terminated must return a bool tensor of the shape \[2\].*; got {got}$"):
        env.step({"agent": torch.zeros(2, 2, dtype=torch.int64)})


@pytest.mark.parametrize("by_mask", [False, True])
def test_the_final_action_mask_is_that_of_the_last_state_and_all_true_of_who_waits(by_mask: bool) -> None:
    """An episode of one step ends in phase 1, in which agent 0 waits; the next one begins in phase 0."""
    for game, expected in ((Phases, [[False, True], [False, True]]), (PhasesInTurn, [[True, True], [False, True]])):
        env = game(max_steps=1).build(2)
        env.restarts_by_mask = by_mask
        env.reset(0)
        for _ in range(2):
            rows = env.step({"agent": torch.zeros(2, 2, dtype=torch.int64)}).groups["agent"]
            assert rows.truncated.all() and rows.action_mask is not None and rows.final_action_mask is not None
            assert rows.final_action_mask.tolist() == [expected] * 2
            assert rows.action_mask.tolist() == [[[True, False]] * 2] * 2


def test_a_masked_step_keeps_its_buffers() -> None:
    """A CUDA graph reads and writes fixed addresses."""
    env = Drifting(max_steps=7).build(4)
    env.restarts_by_mask = True
    step = env.reset(0)
    addresses = {name: value.data_ptr() for name, value in env.state.items()}
    for _ in range(20):
        step = env.step(random_actions(env, step, torch.Generator().manual_seed(2)))
    env.reset(1)
    assert addresses == {name: value.data_ptr() for name, value in env.state.items()}


def test_an_env_alone_plays_as_among_64() -> None:
    many, single = Drifting().build(64), Drifting().build(1)
    step_many, step_single = many.reset(5), single.reset(5 + 17)
    generator = torch.Generator().manual_seed(3)
    for _ in range(30):
        for name, rows in step_many.groups.items():
            assert torch.equal(rows.observation[17], step_single.groups[name].observation[0])
            assert torch.equal(rows.reward[17], step_single.groups[name].reward[0])
        actions = random_actions(many, step_many, generator)
        step_many = many.step(actions)
        step_single = single.step({name: value[17:18] for name, value in actions.items()})
        if step_many.done[17]:
            break


@dataclass(frozen=True)
class Growing(Chase):
    name: ClassVar[str] = "test/growing"
    fault: str = ""

    def step(self, state: Any, action: Any, draw: Any) -> Any:
        state, reward = super().step(state, action, draw)
        if self.fault == "shape":
            state["position"] = state["position"][:, 1:]
        if self.fault == "dtype":
            state["position"] = state["position"].double()
        if self.fault == "name":
            state["speed"] = state["position"]
        if self.fault == "reward":
            reward["hider"] = reward["hider"][:, 0]
        if self.fault == "no reward":
            del reward["hider"]
        return state, reward

    def observe(self, state: Any) -> Any:
        observation = super().observe(state)
        if self.fault == "observation":
            observation["hider"] = observation["hider"][..., :3]
        return observation


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("shape", r"step changed state\['position'\] from \[2, 4, 2\] float32 on cpu to \[2, 3, 2\] float32 on cpu"),
        ("dtype", r"changed state\['position'\] from .* to \[2, 4, 2\] float64"),
        ("name", r"returned a state with \['position', 'speed', 'time'\]; before it had \['position', 'time'\]"),
        ("reward", r"step's rewards of group 'hider' must have the shape \[2, 1\]: env, agent; got \[2\]"),
        ("no reward", r"step's rewards must have a tensor for each of \['seeker', 'hider'\]; got \['seeker'\]"),
        (
            "observation",
            r"observe of group 'hider' must have the shape \[2, 1, 4\]: env, agent, feature; got \[2, 1, 3\]",
        ),
    ],
)
def test_tensors_that_change_are_errors(fault: str, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        env = Growing(fault=fault).build(2)
        env.step(random_actions(env, env.reset(0), torch.Generator()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("state_time"), r"has \['position'\], and a state .* has \['position', 'time'\]"),
        (
            lambda state: state.update(state_speed=state["state_time"]),
            r"the saved state has \['position', 'speed', 'time'\]",
        ),
        (
            lambda state: state.update(state_time=state["state_time"][:1]),
            r"'time' must be \[2\] int64 .*; got \[1\] int64",
        ),
        (lambda state: state.update(state_time=3), "'time' must be .*; got int"),
    ],
)
def test_a_state_of_something_else_is_an_error(change: Any, message: str) -> None:
    env = Drifting().build(2)
    env.reset(0)
    state = env.state_dict()
    change(state)
    with pytest.raises(EnvError, match=message):
        Drifting().build(2).load_state_dict(state)


@dataclass(frozen=True)
class Writing(Chase):
    name: ClassVar[str] = "test/writing"

    def observe(self, state: Any) -> Any:
        state["position"] += 0.01
        return super().observe(state)


def test_writing_to_an_argument_is_an_error() -> None:
    with pytest.raises(EnvError, match="observe writes to its argument 'position'; return a new tensor"):
        mnb.check_vector_env(Writing().build)


def test_a_missing_device_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no device 'cuda:7'"):
        Chase().build(2, "cuda:7")


def test_actions_of_another_shape_are_an_error() -> None:
    env = Chase().build(2)
    env.reset(0)
    with pytest.raises(EnvError, match=r"needs actions of shapes .*'seeker': \[2, 3\].* got .*\[2, 1\]"):
        env.step({"seeker": torch.zeros(2, 1), "hider": torch.zeros(2, 1)})


def test_too_many_envs_for_the_memory_are_an_error_that_says_how_many_fit() -> None:
    """An env has 4 agents with 4 features: 2 (2 × 64 + flags, rewards, seed) + 3 × 32 bytes, some 400."""
    with pytest.raises(
        EnvBuildError, match=r"2,000,000,000 envs need at least .* on cpu, .* B each; .* enough for"
    ) as error:
        Chase().build(2_000_000_000)
    fits = int(str(error.value).partition("enough for ")[2].partition(" envs")[0].replace(",", ""))
    free = free_bytes(torch.device("cpu"))
    assert free is not None and 300 < free / fits < 600 and error.value.at == "n_envs"


def test_what_torch_keeps_of_a_gpu_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds 15 bytes, of which tensors use 4; the driver sees 1 other."""
    for name, value in {"mem_get_info": (1, 16), "memory_reserved": 15, "memory_allocated": 4}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert free_bytes(torch.device("cuda")) == 12


@pytest.mark.parametrize("name", ["mpe/simple", "matrix/climbing", "probe/echo", "tag/gridworld", "tag/continuous"])
def test_native_environments_have_the_same_errors(name: str) -> None:
    with pytest.raises(ConfigError, match="no device 'cuda:7'"):
        mnb.vector_env(name, 2, device="cuda:7")
    with pytest.raises(EnvBuildError, match=rf"{name}: 5,000,000,000 envs need at least .* enough for [\d,]+ envs"):
        mnb.vector_env(name, 5_000_000_000)
