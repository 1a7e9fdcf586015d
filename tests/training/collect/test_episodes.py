from __future__ import annotations

import numpy as np
import pytest
import torch

from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.envs.vector import Step
from marlnb.errors import ConfigError
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.edits import Ablate
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.models.policies.deterministic_policy import DeterministicPolicy
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.training.collect.episodes import TimeStep, play
from tests.training.toys import Count, CountConfig

MODEL = MLPConfig(hidden=(4,))


def _random(env: Count) -> dict[str, Policy]:
    return {group.name: RandomPolicy(group) for group in env.spec.groups}


@pytest.mark.parametrize("n_envs", [1, 3, 8, 30])
def test_exactly_the_episodes_asked_for_count_whatever_their_lengths(n_envs: int) -> None:
    env = Count(CountConfig(), n_envs)
    table = play(env, _random(env), episodes=20, seed=100, explore=True)
    seeds = np.arange(100, 120)
    lengths = 2 + seeds % 7
    assert len(table) == 20 and table.seed.tolist() == seeds.tolist() and table.length.tolist() == lengths.tolist()
    np.testing.assert_array_equal(table.returns["a"], np.stack([seeds % 5 * lengths, (seeds % 5 + 1) * lengths], 1))
    np.testing.assert_array_equal(table.group_return("a"), (seeds % 5 + 0.5) * lengths)
    frame = table.to_frame()
    assert list(frame.columns) == ["seed", "length", "a_0", "a_1", "b_0"] and frame["b_0"].tolist() == list(
        seeds % 5 * lengths
    )


def test_the_callback_sees_every_step_of_counted_episodes_once() -> None:
    class Notes:
        def __init__(self) -> None:
            self.steps: list[tuple[int, int, int]] = []
            self.rewards: dict[int, float] = {}

        def before_step(self, time_step: TimeStep) -> None:
            assert (time_step.observation["a"][:, 0, 0] == time_step.t).all()
            self.steps += zip(time_step.episode.tolist(), time_step.t.tolist(), time_step.episode_seed.tolist())

        def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
            for episode, reward in zip(time_step.episode.tolist(), step.groups["b"].reward[:, 0].tolist()):
                self.rewards[episode] = self.rewards.get(episode, 0.0) + reward

    env, notes = Count(CountConfig(), 3), Notes()
    table = play(env, _random(env), episodes=7, seed=100, explore=True, callback=notes)
    expected = [(k, t, 100 + k) for k in range(7) for t in range(2 + (100 + k) % 7)]
    assert sorted(row for row in notes.steps if row[0] >= 0) == expected
    assert [notes.rewards[k] for k in range(7)] == table.returns["b"][:, 0].tolist()


def test_modes_come_back_after_an_error() -> None:
    env = Count(CountConfig(fail_at=3), 2)
    policies = _random(env)
    policies["a"].train()
    policies["b"].eval()
    with pytest.raises(RuntimeError, match="broke"):
        play(env, policies, episodes=9, seed=0, explore=True)
    assert policies["a"].training and not policies["b"].training


def test_correlated_noise_starts_again_with_each_episode_and_continues_afterwards() -> None:
    """With theta 0 and noise 0, the noise keeps the value 1 that every episode's last step sets, until it is reset."""
    env = SimpleSpreadConfig(max_cycles=3, continuous_actions=True).build(2)
    (group,) = env.spec.groups
    policy = DeterministicPolicy(group, env.spec, MODEL, MODEL, centralised=False, twins=False)
    policy.process = (0.0, 1.0)
    of_training = policy.noise_state = torch.ones(2, 3, 5)
    sizes = []

    class Noise:
        def before_step(self, time_step: TimeStep) -> None:
            assert policy.noise_state is not None
            sizes.append(float(policy.noise_state.abs().max()))

        def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
            policy.noise_state = torch.full_like(of_training, float(ended))

    play(env, {group.name: policy}, episodes=4, seed=0, explore=True, callback=Noise())
    assert sizes == [0.0] * 6 and policy.noise_state is of_training


def test_an_edit_of_the_first_step_applies_there() -> None:
    """Without the hidden layer all logits are 0. Episode 1 has three steps."""
    env, logits = Count(CountConfig(), 1), []
    policies = _random(env) | {"a": ActorCritic(env.spec.group("a"), env.spec, MODEL, MODEL)}

    class Notes:
        def before_step(self, time_step: TimeStep) -> None:
            logits.append(time_step.output["a"].logits.clone())

        def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
            pass

    with edited(policies["a"], [Ablate("*/actor/hidden_1", t=0)]):
        play(env, policies, episodes=1, seed=1, explore=True, callback=Notes())
    assert [bool(each.any()) for each in logits] == [False, True, True]


def test_missing_policies_and_no_episodes_are_refused() -> None:
    env = Count(CountConfig(), 2)
    with pytest.raises(ConfigError, match=r"expected the groups \['a', 'b'\]"):
        play(env, {"a": RandomPolicy(env.spec.groups[0])}, episodes=1, seed=0, explore=True)
    with pytest.raises(ConfigError, match="got 0"):
        play(env, _random(env), episodes=0, seed=0, explore=True)


def test_a_random_policy_draws_allowed_choices_evenly() -> None:
    from marlnb.specs import ActionSpec, GroupSpec, ObservationSpec

    group = GroupSpec("a", ("a_0",), ObservationSpec((1,)), ActionSpec("multi_discrete", (3, 2)), has_action_mask=True)
    mask = torch.tensor([True, False, True, True, True]).expand(6000, 1, 5)
    generator = torch.Generator().manual_seed(0)
    output = RandomPolicy(group).act(torch.zeros(6000, 1, 1), action_mask=mask, generator=generator)
    assert output.action.shape == (6000, 1, 2)
    shares = output.action[:, 0, 0].bincount(minlength=3) / 6000
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.0, 0.5]), atol=0.03, rtol=0)
    torch.testing.assert_close(output.log_prob, torch.full((6000, 1), -np.log(4.0), dtype=torch.float32))


def test_a_random_policy_fills_the_box_of_a_continuous_action() -> None:
    from marlnb.specs import ActionSpec, GroupSpec, ObservationSpec

    group = GroupSpec("a", ("a_0",), ObservationSpec((1,)), ActionSpec("continuous", low=(-1.0, 2.0), high=(1.0, 6.0)))
    output = RandomPolicy(group).act(torch.zeros(5000, 1, 1), generator=torch.Generator().manual_seed(0))
    low, high = output.action[:, 0].amin(0), output.action[:, 0].amax(0)
    torch.testing.assert_close(low, torch.tensor([-1.0, 2.0]), atol=0.01, rtol=0)
    torch.testing.assert_close(high, torch.tensor([1.0, 6.0]), atol=0.01, rtol=0)
    torch.testing.assert_close(output.log_prob, torch.full((5000, 1), -np.log(8.0), dtype=torch.float32))


def test_an_overridden_action_is_taken_instead_and_callbacks_see_it() -> None:
    class Notes:
        def __init__(self) -> None:
            self.actions: dict[str, list[torch.Tensor]] = {"a": [], "b": []}

        def before_step(self, time_step: TimeStep) -> None:
            for name, actions in self.actions.items():
                actions.append(time_step.output[name].action.clone())

        def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
            pass

    def play_noted(**options: object) -> dict[str, list[torch.Tensor]]:
        env, notes = Count(CountConfig(), 3), Notes()
        generator = torch.Generator().manual_seed(0)
        play(env, _random(env), episodes=7, seed=100, explore=True, generator=generator, callback=notes, **options)  # type: ignore[arg-type]
        return notes.actions

    plain = play_noted()
    replaced = play_noted(override_action=lambda step: {"a": step.output["a"].action * 0 + step.t[:, None] % 3})
    assert all(torch.equal(*pair) for pair in zip(plain["b"], replaced["b"]))
    assert [actions[0].tolist() for actions in replaced["a"][:2]] == [[0, 0], [1, 1]]
