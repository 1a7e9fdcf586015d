"""Native MPE as a VectorEnv: the contract, seeds, saved states, names, labels and errors."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.contract import check_vector_env
from marlnb.envs.mpe.simple_reference import SimpleReferenceConfig
from marlnb.envs.mpe.simple_speaker_listener import SimpleSpeakerListenerConfig
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.envs.mpe.simple_tag import SimpleTagConfig
from marlnb.envs.mpe.simple_world_comm import SimpleWorldCommConfig
from marlnb.envs.mpe.world import BY_PAIR_FROM_ENVS
from marlnb.envs.steps import random_actions
from marlnb.errors import EnvError
from tests.envs.mpe.worlds import rules_of, world_of

NAMES = [name for name in ENVIRONMENTS.names() if name.startswith("mpe/")]


def test_the_nine_scenarios_are_registered() -> None:
    scenarios = ["adversary", "crypto", "push", "reference", "speaker_listener", "spread", "tag", "world_comm"]
    assert ["mpe/simple", *(f"mpe/simple_{name}" for name in scenarios)] == NAMES


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str, continuous: bool) -> None:
    check_vector_env(ENVIRONMENTS.get(name)(continuous_actions=continuous, state=True).build)


def test_contract_with_early_endings() -> None:
    check_vector_env(SimpleTagConfig(terminate_on_success=True, num_obstacles=0, max_cycles=200).build)
    check_vector_env(SimpleSpreadConfig(N=1, terminate_on_success=True).build)


@pytest.mark.parametrize("n_envs", [37, BY_PAIR_FROM_ENVS])
@pytest.mark.parametrize("config", [SimpleSpreadConfig(N=6), SimpleTagConfig(num_good=3, terminate_on_success=True)])
def test_an_episode_does_not_depend_on_the_number_of_envs(
    config: SimpleSpreadConfig | SimpleTagConfig, n_envs: int
) -> None:
    few, many = config.build(2), config.build(n_envs)
    few.reset(seed=100), many.reset(seed=95)  # copy 5 of the many runs under the seed of copy 0 of the few
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        actions = {g.name: torch.randint(5, (n_envs, g.n_agents), generator=generator) for g in few.spec.groups}
        ours = few.step({name: action[5:7] for name, action in actions.items()})
        theirs = many.step(actions)
        for name, group in ours.groups.items():
            assert torch.equal(group.observation, theirs.groups[name].observation[5:7])
            assert torch.equal(group.reward, theirs.groups[name].reward[5:7])


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_state_continues_bit_for_bit_in_another_environment(name: str) -> None:
    config = ENVIRONMENTS.get(name)(max_cycles=9, state=True)
    env, other = config.build(3), config.build(3)
    env.reset(seed=1)
    generator = torch.Generator().manual_seed(0)

    def actions() -> dict[str, torch.Tensor]:
        return {
            g.name: torch.randint(g.action.n[0], (3, g.n_agents), generator=generator)
            for g in config.build(1).spec.groups
        }

    for _ in range(13):
        step = env.step(actions())
    now = {group: rows.observation.clone() for group, rows in step.groups.items()}
    restored = other.load_state_dict(env.state_dict())
    assert all(torch.equal(restored.groups[group].observation, now[group]) for group in now)
    assert torch.equal(restored.episode_seed, step.episode_seed)
    for _ in range(20):
        taken = actions()
        ours, theirs = env.step(taken), other.step(taken)
        assert torch.equal(ours.done, theirs.done) and torch.equal(ours.state, theirs.state)
        for group, rows in ours.groups.items():
            assert torch.equal(rows.reward, theirs.groups[group].reward)


def test_a_state_in_another_order_in_memory_continues_as_well() -> None:
    usual, other = SimpleSpreadConfig().build(3), SimpleSpreadConfig().build(3)
    step, generator = usual.reset(seed=1), torch.Generator().manual_seed(0)
    other.reset(seed=1)
    other.state["rows"] = other.state["rows"].contiguous()
    for _ in range(3):
        actions = random_actions(usual, step, generator)
        step = usual.step(actions)
        assert torch.equal(other.step(actions).groups["agent"].observation, step.groups["agent"].observation)


def test_truncation_keeps_the_last_observation_and_starts_the_next_episode() -> None:
    env = SimpleSpreadConfig(max_cycles=2).build(3)
    env.reset(seed=4)
    still = {"agent": torch.zeros(3, 3, dtype=torch.int64)}
    before = env.step(still).groups["agent"].observation.clone()
    step = env.step(still)
    rows = step.groups["agent"]
    assert step.done.all() and rows.truncated.all() and not rows.terminated.any()
    assert step.episode_seed.tolist() == [7, 8, 9]
    rules = rules_of(env)
    apart = rules.scenario.features(rules.layout, 0)
    assert len(apart) == rows.observation.shape[-1]
    torch.testing.assert_close(rows.final_observation[..., 2:4], before[..., 2:4], atol=0.2, rtol=0)
    assert (rows.observation[..., 2:4] - before[..., 2:4]).abs().max() > 0.2
    assert not env.step(still).done.any() and not rows.truncated.any()


def test_starting_positions_and_goals_are_uniform() -> None:
    env = SimpleSpeakerListenerConfig().build(20_000)
    env.reset(seed=0)
    position = world_of(env).position.flatten(0, 1)
    assert position.min() >= -1 and position.max() < 1
    assert position.mean(1).abs().max() < 5 * 3**-0.5 / 20_000**0.5
    torch.testing.assert_close(position.var(1), torch.full((10,), 1 / 3).double(), atol=0.01, rtol=0)
    assert (torch.corrcoef(position) - torch.eye(10)).abs().max() < 5 / 20_000**0.5
    shares = torch.bincount(world_of(env).choice["goal"]) / 20_000
    assert (shares - 1 / 3).abs().max() < 5 * (2 / 9 / 20_000) ** 0.5
    tag = SimpleTagConfig().build(2000)
    tag.reset(seed=0)
    assert 0.89 < world_of(tag).position[:, 4:].abs().max() < 0.9


def test_features_and_actions_have_names() -> None:
    spec = SimpleSpeakerListenerConfig().build(1).spec
    assert spec.group("speaker").observation.names == ("goal_red", "goal_green", "goal_blue")
    assert spec.group("listener").observation.names[:4] == (
        "velocity_x",
        "velocity_y",
        "landmark_0_dx",
        "landmark_0_dy",
    )
    assert spec.group("listener").observation.names[-3:] == ("message_0", "message_1", "message_2")
    assert spec.group("listener").action.names == ("no_op", "left", "right", "down", "up")
    reference = SimpleReferenceConfig().build(1).spec.group("agent").action
    assert reference.names[16] == "left+say_3" and len(reference.names) == 50
    world = SimpleWorldCommConfig().build(1).spec
    assert world.agents[:2] == ("leadadversary_0", "adversary_0")
    assert {"in_forest_1", "food_0_dx", "other_adversary_1_dx"} <= set(world.group("adversary").observation.names)


def test_labels_tell_the_goal_that_the_observation_shows() -> None:
    env = SimpleSpeakerListenerConfig().build(50)
    step = env.reset(seed=0)
    labels = env.labels()
    assert torch.equal(labels["goal"], step.groups["speaker"].observation[:, 0].argmax(-1))
    landmarks = step.groups["listener"].observation[:, 0, 2:8].view(50, 3, 2)
    distance = landmarks.norm(dim=-1)
    assert torch.equal(labels["listener_nearest_landmark"][:, 0], distance.argmin(1))
    torch.testing.assert_close(labels["goal_distance"], distance[torch.arange(50), labels["goal"]])
    assert labels["speaker_word"].eq(0).all()
    env.step({"speaker": torch.full((50, 1), 2), "listener": torch.zeros(50, 1, dtype=torch.int64)})
    assert env.labels()["speaker_word"].eq(3).all()  # after "silent" come say_0, say_1, say_2


@pytest.mark.parametrize("name", NAMES)
def test_labels_computed_later_equal_those_computed_at_once(name: str) -> None:
    env = ENVIRONMENTS.get(name)().build(4)
    step, generator = env.reset(seed=3), torch.Generator().manual_seed(0)
    moments, labels = [], []
    for _ in range(30):  # beyond an episode's end: what it drew changes
        moments.append(env.label_state().clone())
        labels.append(env.labels())
        step = env.step(random_actions(env, step, generator))
    later = env.labels_of(torch.cat(moments))
    assert set(later) == {label.name for label in env.spec.labels}
    for label, values in later.items():
        assert torch.equal(values, torch.cat([at_the_time[label] for at_the_time in labels])), label


def test_labels_of_reference_are_the_partners_knowledge() -> None:
    env = SimpleReferenceConfig().build(50)
    step = env.reset(seed=0)
    names = env.spec.group("agent").observation.names
    shown = step.groups["agent"].observation[..., names.index("partner_goal_red") :][..., :3].argmax(-1)
    assert torch.equal(env.labels()["partner_goal"], shown)
    assert torch.equal(env.labels()["goal"], shown.flip(1))


def test_errors_name_the_request() -> None:
    with pytest.raises(EnvError, match="n_envs=0"):
        SimpleSpreadConfig().build(0)
    env = SimpleSpreadConfig().build(2)
    with pytest.raises(EnvError, match="before its first reset"):
        env.step({"agent": torch.zeros(2, 3, dtype=torch.int64)})
    env.reset(seed=0)
    with pytest.raises(EnvError, match=r"environments 0 to 1; got 2"):
        env.render(2)
    with pytest.raises(EnvError, match="saved state"):
        env.load_state_dict(SimpleSpreadConfig().build(3).state_dict())
    with pytest.raises(EnvError, match="agent"):
        env.step({"agents": torch.zeros(2, 3, dtype=torch.int64)})
    with pytest.raises(EnvError, match=r"\[2, 3\]"):
        env.step({"agent": torch.zeros(3, 2, dtype=torch.int64)})


def test_registering_imports_no_torch() -> None:
    code = "import sys, marlnb.envs.mpe; assert 'torch' not in sys.modules and 'mpe2' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("config", [SimpleSpreadConfig(max_cycles=4), SimpleTagConfig(terminate_on_success=True)])
def test_envs_can_start_with_chosen_seeds(config: SimpleSpreadConfig | SimpleTagConfig) -> None:
    """Two envs with one seed play one episode, the one that `reset` plays, and a saved state keeps the seeds."""
    env, alone, other = config.build(3), config.build(3), config.build(3)
    step, expected = env.reset_each(torch.tensor([9, 9, 4])), alone.reset(seed=9)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        actions = {g.name: torch.randint(5, (1, g.n_agents), generator=generator).repeat(3, 1) for g in env.spec.groups}
        step, expected = env.step(actions), alone.step(actions)
        for name, group in step.groups.items():
            for row in (0, 1):
                assert torch.equal(group.observation[row], expected.groups[name].observation[0])
            assert not torch.equal(group.observation[2], expected.groups[name].observation[0])
    restored = other.load_state_dict(env.state_dict())
    assert restored.episode_seed.tolist() == [9, 9, 4]
    with pytest.raises(EnvError, match="one seed for each of 3 environments"):
        env.reset_each(torch.tensor([1, 2]))
