from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from tensordict import TensorDict

from marlnb.envs.side_by_side import SideBySide
from marlnb.envs.vector import Step, VectorEnv
from marlnb.experiment import Experiment
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.training.collect.rollout import Collector, collect_in_turn
from marlnb.training.learners import build_learners
from tests.algorithms.echo import Echo
from tests.envs.phases import Phases
from tests.training.toys import Count, CountConfig


def _random(env: VectorEnv) -> dict[str, Policy]:
    return {group.name: RandomPolicy(group) for group in env.spec.groups}


def _collect(env: VectorEnv, n_rollouts: int, n_steps: int, *, by_mask: bool = False) -> list[TensorDict]:
    collector = Collector(env, _random(env), n_steps, generator=torch.Generator().manual_seed(0))
    collector.by_mask = by_mask
    collector.reset(11)
    return [collector.collect().to_tensordict().clone() for _ in range(n_rollouts)]


def _history(seed: int, copy: int, n_envs: int, steps: int) -> list[tuple[int, int, bool]]:
    """(t, episode's seed, whether the step ends it) of one copy, from the toy's definition."""
    expected_steps, episode = [], 0
    while len(expected_steps) < steps:
        own = seed + episode * n_envs + copy
        length = 2 + own % 7
        expected_steps += [(t, own, t == length - 1) for t in range(length)]
        episode += 1
    return expected_steps[:steps]


def test_rollouts_hold_what_the_environment_did_and_follow_each_other() -> None:
    rollouts = _collect(Count(CountConfig(), 3), n_rollouts=3, n_steps=6)
    whole = torch.cat(rollouts, dim=1)
    assert whole.batch_size == (3, 18)
    for copy in range(3):
        for at, (t, seed, ends) in enumerate(_history(11, copy, 3, 18)):
            row = whole[copy, at]
            assert bool(row["is_init"]) == (t == 0) and bool(row["next", "done"]) == ends
            for group, n in (("a", 2), ("b", 1)):
                assert row[group, "observation"].tolist() == [[t, seed % 7]] * n
                assert row["next", group, "observation"].tolist() == [[t + 1, seed % 7]] * n
                assert row["next", group, "reward"][:, 0].tolist() == [seed % 5 + agent for agent in range(n)]
                assert row["next", group, "truncated"].all() == ends and not row["next", group, "terminated"].any()
                assert row["next", group, "done"].all() == ends
                assert row[group, "acting"].all() and row["next", group, "alive"].all()


@pytest.mark.parametrize("by_mask", [False, True])
def test_agents_that_die_and_appear_are_masked_and_keep_their_last_observation(by_mask: bool) -> None:
    """A dead agent's next observation is zero, also where the next step is the next episode's first."""
    env = Count(CountConfig(mortal=True), 2)
    (rollout,) = _collect(env, n_rollouts=1, n_steps=20, by_mask=by_mask)
    for copy in range(2):
        for at, (t, seed, ends) in enumerate(_history(11, copy, 2, 20)):
            row = rollout[copy, at]
            assert row["a", "alive"].tolist() == [True, t < 2] == row["a", "acting"].tolist()
            assert row["b", "alive"].tolist() == [t >= 2]
            dies = t == 1
            assert row["next", "a", "terminated"][:, 0].tolist() == [False, dies]
            assert row["next", "a", "done"][:, 0].tolist() == [ends, dies or (ends and t < 2)]
            expected_observation = [t + 1, seed % 7] if t < 2 else [0, 0]
            assert row["next", "a", "observation"][1].tolist() == expected_observation
            if not ends:
                assert row["next", "a", "alive"].tolist() == [True, t + 1 < 2]


@pytest.mark.parametrize("by_mask", [False, True])
def test_a_truncated_episode_has_the_mask_of_its_last_observation(by_mask: bool) -> None:
    """Phases are 0, 1, 0 and last 1; the next episode begins in phase 0."""
    env = Phases(max_steps=3).build(2)
    env.restarts_by_mask = by_mask
    (rollout,) = _collect(env, n_rollouts=1, n_steps=7, by_mask=by_mask)
    for t, phase in enumerate([1, 0, 1, 1, 0, 1, 1]):
        allowed = [[[phase == 0, phase == 1]] * 2] * 2  # [env, agent, choice]
        assert rollout["next", "agent", "action_mask"][:, t].tolist() == allowed
        assert rollout["next", "agent", "observation"][:, t].bool().tolist() == allowed
    assert rollout["next", "agent", "truncated"][0, :, 0, 0].nonzero().flatten().tolist() == [2, 5]


@pytest.mark.parametrize("by_mask", [False, True])
def test_who_has_no_next_step_may_choose_anything(by_mask: bool) -> None:
    """a_0 is truncated in phase 1, a_1 terminates there."""
    env = Phases(max_steps=3).build(1)
    env.restarts_by_mask = by_mask
    collector = Collector(_OneTerminates(env), _random(env), 4, generator=torch.Generator().manual_seed(0))
    collector.by_mask = by_mask
    collector.reset(0)
    mask = collector.collect()["next", "agent", "action_mask"][0]
    assert mask[2].tolist() == [[False, True], [True, True]]
    assert mask[3].tolist() == [[False, True], [False, True]]


class _OneTerminates(VectorEnv):
    """As another environment, but its last agent terminates where it would be truncated."""

    def __init__(self, env: VectorEnv) -> None:
        self.env, self.spec, self.n_envs, self.device = env, env.spec, env.n_envs, env.device

    def reset(self, seed: int) -> Step:
        return self.env.reset(seed)

    def step(self, actions: Mapping[str, torch.Tensor]) -> Step:
        step = self.env.step(actions)
        for rows in step.groups.values():
            rows.terminated[:, -1], rows.truncated[:, -1] = rows.truncated[:, -1].clone(), False
        return step


def test_a_recurrent_rollout_can_be_replayed_from_its_stored_states() -> None:
    """Log-probabilities recomputed over whole sequences, with states zeroed at is_init, are those of acting."""
    experiment = Experiment.compose(
        "env=mpe/simple_speaker_listener", "algorithm=ippo", "model=gru", "n_envs=3", "rollout_steps=16", "threads=1"
    )
    env = experiment.env.build(3)
    learners = build_learners(experiment, env.spec)
    collector = Collector(env, {n: learner.policy for n, learner in learners.items()}, 16)
    collector.reset(5)
    collector.collect()
    rollout = collector.collect()
    assert rollout["is_init"].any() and rollout["listener", "recurrent"][:, 0].abs().sum() > 0
    for name, learner in learners.items():
        policy = learner.policy
        recurrent = rollout[name, "recurrent"][:, 0]
        for t in range(16):
            recurrent = recurrent * ~rollout["is_init"][:, t, :, None, None]
            torch.testing.assert_close(recurrent, rollout[name, "recurrent"][:, t])
            output = policy.act(rollout[name, "observation"][:, t], recurrent=recurrent, explore=False)
            assert output.recurrent is not None
            logits = output.logits.log_softmax(-1)
            chosen = logits.gather(-1, rollout[name, "action"][:, t, :, None])[..., 0]
            torch.testing.assert_close(chosen, rollout[name, "log_prob"][:, t])
            recurrent = output.recurrent


def test_the_recurrent_state_of_a_waiting_player_does_not_change() -> None:
    """Player 1 waits at the first step, and player 0 at the second."""
    env, model = Echo(3), GRUConfig(hidden=(8,), recurrent_size=4)
    (group,) = env.spec.groups
    collector = Collector(env, {group.name: ActorCritic(group, env.spec, model, model)}, 3)
    collector.reset(0)
    state = collector.collect()[group.name, "recurrent"]  # [env, time, agent, layer, unit], before each step
    assert state[:, 1, 0].all() and not state[:, 1, 1].any()
    assert torch.equal(state[:, 2, 0], state[:, 1, 0]) and state[:, 2, 1].all()


def test_the_buffers_are_made_once() -> None:
    env = Count(CountConfig(), 2)
    collector = Collector(env, _random(env), 4)
    collector.reset(0)
    first = collector.collect()
    pointer = first["a", "observation"].data_ptr()
    assert collector.collect() is first and first["a", "observation"].data_ptr() == pointer


class _Logged(Count):
    """Writes down when it starts and finishes a step."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__(CountConfig(), 2)
        self._name, self._log = name, log

    def start_step(self, actions: Mapping[str, torch.Tensor]) -> None:
        self._log.append(f"start {self._name}")
        super().start_step(actions)

    def finish_step(self) -> Step:
        self._log.append(f"finish {self._name}")
        return super().finish_step()


def test_collectors_in_turn_act_while_the_environments_of_others_step() -> None:
    log: list[str] = []
    collectors = []
    for names in ("ab", "c"):
        parts = [_Logged(name, log) for name in names]
        env = SideBySide(parts, [part.reset(11) for part in parts])
        collector = Collector(env, _random(env), 2, generator=torch.Generator().manual_seed(0))
        collector.reset(11)
        collectors.append(collector)
    first, second = collect_in_turn(collectors)
    assert log[:5] == ["start a", "start b", "start c", "finish a", "finish b"]
    assert log[5:9] == ["start a", "start b", "finish c", "start c"]
    assert log[9:] == ["finish a", "finish b", "finish c"]
    (alone,) = _collect(Count(CountConfig(), 2), 1, 2)
    for key in alone.keys(include_nested=True, leaves_only=True):
        assert torch.equal(second.to_tensordict()[key], alone[key]), key
    assert torch.equal(first["a", "observation"][2:], alone["a", "observation"])  # equal seeds
