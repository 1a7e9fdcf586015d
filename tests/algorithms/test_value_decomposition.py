"""IQL, VDN and QMIX against torchrl's losses, and on games whose values are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torchrl.modules import QValueModule
from torchrl.modules.models.multiagent import QMixer, VDNMixer
from torchrl.objectives import DQNLoss
from torchrl.objectives.multiagent import QMixerLoss

from marlnb.algorithms.configs.value_decomposition import IQLConfig, QMIXConfig, VDNConfig
from marlnb.algorithms.replay import Sample
from marlnb.algorithms.rollout import Rollout
from marlnb.algorithms.value_decomposition import QLearner
from marlnb.config import LearnerContext, ModelConfig
from marlnb.envs.games.config import GameConfig
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.models.networks.configs.gnn import GNNConfig
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.networks.mixers import MonotonicMixer
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec
from marlnb.training.loop import Loop
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

GROUP = GroupSpec("a", ("a_0", "a_1", "a_2"), ObservationSpec((6,)), ActionSpec("discrete", n=(4,)))
ENV = EnvSpec("test/three", (GROUP,), state_shape=(5,))
MLP = MLPConfig(hidden=(16,))
manual_targets = pytest.mark.filterwarnings("ignore:No target network updater:UserWarning")
CONFIGS = {"iql": IQLConfig, "vdn": VDNConfig, "qmix": QMIXConfig}


def build(config: IQLConfig, env: EnvSpec = ENV, model: ModelConfig = MLP) -> QLearner:
    """A learner whose networks are far from their start, targets included."""
    torch.manual_seed(0)
    learner = config.build(LearnerContext(env.groups[0], env, model, model, 4, 8))
    with torch.no_grad():
        for module in (learner.policy, learner.targets):
            for parameter in module.parameters():
                parameter += 0.3 * torch.randn(parameter.shape)
    return learner


def sample_of(n: int = 32, *, seed: int = 0) -> Sample:
    """A minibatch in which agents live; a fifth of the moments is terminated."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(n, *shape, generator=generator)

    terminated = (torch.rand(n, 1, 1, generator=generator) < 0.2).expand(n, 3, 1).clone()
    living = torch.ones(n, 3, dtype=torch.bool)
    return {
        ("a", "observation"): normal(3, 6),
        ("next", "a", "observation"): normal(3, 6),
        ("a", "action"): torch.randint(4, (n, 3), generator=generator),
        ("a", "acting"): living,
        ("a", "alive"): living,
        ("next", "a", "alive"): living & ~terminated[..., 0],
        ("next", "a", "reward"): normal(1, 1).expand(n, 3, 1).clone(),
        ("next", "a", "terminated"): terminated,
        ("next", "a", "done"): terminated.clone(),
        "state": normal(5),
        ("next", "state"): normal(5),
    }


def torchrl_batch(sample: Sample, *, team: bool) -> TensorDict:
    """The same minibatch as torchrl's losses take it: flags and rewards by agent, or of the team."""

    def ends(name: str) -> torch.Tensor:
        value = sample["next", "a", name]
        return value[:, 0] if team else value

    n = len(sample["state"])
    batch = TensorDict({}, [n])
    agents = {"observation": sample["a", "observation"], "action": sample["a", "action"]}
    batch["agents"] = TensorDict(agents, [n, 3])
    batch["next", "agents"] = TensorDict({"observation": sample["next", "a", "observation"]}, [n, 3])
    batch["state"], batch["next", "state"] = sample["state"], sample["next", "state"]
    for name in ("reward", "terminated", "done"):
        batch[("next", name) if team else ("next", "agents", name)] = ends(name)
    if "steps" in sample:
        batch["steps_to_next_obs"] = sample["steps"] if team else sample["steps"][..., None].expand(n, 3, 1)
    return batch


class Plain(torch.nn.Module):
    """A network's output alone, of one agent's or all agents' observations."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.network(x)[0]
        return output


def load_targets(loss: Any, name: str, target: torch.nn.Module) -> None:
    """Lays our target network's weights into torchrl's copy."""
    ours = dict(target.named_parameters())
    held = getattr(loss, f"target_{name}_params")
    for key in held.keys(True, True):
        path = (key,) if isinstance(key, str) else key
        named = ".".join(path).split("network.", 1)[-1].removeprefix("module.0.module.")
        held.get(key).data.copy_(ours[f"network.{named}"].data)


def with_steps(sample: Sample, several_steps: bool) -> Sample:
    return {**sample, "steps": torch.arange(len(sample["state"]))[:, None] % 4 + 1} if several_steps else sample


@manual_targets
@pytest.mark.parametrize("several_steps", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("kind", ["l2", "huber"])
def test_iql_is_torchrls_dqn_loss(double: bool, kind: str, several_steps: bool) -> None:
    learner = build(IQLConfig(gamma=0.9, double=double, loss=kind))  # type: ignore[arg-type]
    sample = with_steps(sample_of(), several_steps)
    network = TensorDictModule(
        Plain(learner.policy.actor.network), [("agents", "observation")], [("agents", "action_value")]
    )
    value = QValueModule(
        action_value_key=("agents", "action_value"),
        out_keys=[("agents", "action"), ("agents", "action_value"), ("agents", "chosen_action_value")],
        action_space="categorical",
    )
    oracle = DQNLoss(
        TensorDictSequential(network, value),
        loss_function="l2" if kind == "l2" else "smooth_l1",
        delay_value=True,
        double_dqn=double,
        action_space="categorical",
    )
    oracle.set_keys(
        action_value=("agents", "action_value"),
        action=("agents", "action"),
        value=("agents", "chosen_action_value"),
        reward=("agents", "reward"),
        done=("agents", "done"),
        terminated=("agents", "terminated"),
    )
    oracle.make_value_estimator(gamma=0.9)
    load_targets(oracle, "value_network", learner.targets["actor"])
    expected = oracle(torchrl_batch(sample, team=False))["loss"]
    loss, metrics = learner.loss(sample)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(metrics["loss"], expected.detach())


@manual_targets
@pytest.mark.parametrize("several_steps", [False, True])
@pytest.mark.parametrize("name", ["vdn", "qmix"])
def test_mixtures_are_torchrls_qmixer_loss(name: str, several_steps: bool) -> None:
    options = {"hyper_units": 0} if name == "qmix" else {}
    learner = build(CONFIGS[name](gamma=0.9, double=False, **options))  # type: ignore[arg-type]
    sample = with_steps(sample_of(), several_steps)
    network = TensorDictModule(
        Plain(learner.policy.actor.network), [("agents", "observation")], [("agents", "action_value")]
    )
    value = QValueModule(
        action_value_key=("agents", "action_value"),
        out_keys=[("agents", "action"), ("agents", "action_value"), ("agents", "chosen_action_value")],
        action_space="categorical",
    )
    if name == "vdn":
        theirs: torch.nn.Module = VDNMixer(n_agents=3, device="cpu")
        mixer = TensorDictModule(theirs, [("agents", "chosen_action_value")], ["chosen_action_value"])
    else:
        theirs = as_torchrl(learner.policy.mixer)
        mixer = TensorDictModule(theirs, [("agents", "chosen_action_value"), "state"], ["chosen_action_value"])
    oracle = QMixerLoss(TensorDictSequential(network, value), mixer, delay_value=True, action_space="categorical")
    oracle.set_keys(
        action_value=("agents", "action_value"),
        action=("agents", "action"),
        local_value=("agents", "chosen_action_value"),
        global_value="chosen_action_value",
    )
    oracle.loss_function = "l2"
    oracle.make_value_estimator(gamma=0.9)
    load_targets(oracle, "local_value_network", learner.targets["actor"])
    if name == "qmix":
        slow = as_torchrl(learner.targets["mixer"])
        for key, parameter in slow.named_parameters():
            oracle.target_mixer_network_params.get(("module", *key.split("."))).data.copy_(parameter.data)
    expected = oracle(torchrl_batch(sample, team=True))["loss"]
    torch.testing.assert_close(learner.loss(sample)[0], expected)


def as_torchrl(mixer: Any) -> QMixer:
    """torchrl's mixer with the weights of ours."""
    assert isinstance(mixer, MonotonicMixer)
    theirs = QMixer((mixer.hyper.in_features,), mixer.units, mixer.n_agents, "cpu")
    maps = (theirs.hyper_w_1, theirs.hyper_b_1, theirs.hyper_w_final, theirs.V[0])
    with torch.no_grad():
        for linear, weight, bias in zip(
            maps, mixer.hyper.weight.split(mixer.sizes), mixer.hyper.bias.split(mixer.sizes)
        ):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        theirs.V[2].load_state_dict(mixer.last_bias.state_dict())
    return theirs


@pytest.mark.parametrize("name", ["iql", "vdn", "qmix"])
def test_what_the_dead_see_do_and_earn_does_not_matter(name: str) -> None:
    learner = build(CONFIGS[name]())
    sample = sample_of()
    dead = torch.zeros(32, 3, dtype=torch.bool)
    dead[:16, 2] = True
    sample["a", "acting"] = sample["a", "alive"] = ~dead
    sample["next", "a", "alive"] = sample["next", "a", "alive"] & ~dead
    other = dict(sample)
    noise = sample_of(seed=1)
    for key in (("a", "observation"), ("next", "a", "observation"), ("next", "a", "reward")):
        other[key] = torch.where(dead.unsqueeze(-1), noise[key], sample[key])
    other["a", "action"] = torch.where(dead, noise["a", "action"], sample["a", "action"])
    torch.testing.assert_close(learner.loss(sample)[0], learner.loss(other)[0])


@pytest.mark.parametrize("name", ["iql", "vdn", "qmix"])
def test_messages_in_a_target_are_of_agents_that_live(name: str) -> None:
    """What agent 2 sees as it dies is in no message of the next step."""
    learner, sample = build(CONFIGS[name](), model=GNNConfig(hidden=(8,), rounds=(8,))), sample_of()
    dies = torch.arange(3) == 2
    sample["next", "a", "terminated"] = dies.view(1, 3, 1).expand(32, 3, 1)
    sample["next", "a", "alive"] = (~dies).expand(32, 3)
    gone = dict(sample)
    gone["next", "a", "observation"] = sample["next", "a", "observation"] * ~dies.view(1, 3, 1)
    torch.testing.assert_close(learner.loss(sample)[0], learner.loss(gone)[0])


def test_the_teams_target_by_hand() -> None:
    """Agent 1 dies at this step, agent 2 was dead: the team earns the mean of two, and agent 0 alone has a future."""
    learner = build(VDNConfig(gamma=0.5, double=False))
    sample = sample_of(1)
    sample["a", "acting"] = torch.tensor([[True, True, False]])
    sample["next", "a", "terminated"] = torch.tensor([[[False], [True], [False]]])
    sample["next", "a", "alive"] = torch.tensor([[True, False, False]])
    sample["next", "a", "reward"] = torch.tensor([[[3.0], [1.0], [100.0]]])
    with torch.no_grad():
        q = learner.policy.actor(sample["a", "observation"])[0]
        chosen = q[0, sample["a", "action"][0, 0]] + q[1, sample["a", "action"][0, 1]]
        future = learner.targets["actor"](sample["next", "a", "observation"])[0, 0].max()
    expected = (chosen - (2.0 + 0.5 * future)) ** 2
    torch.testing.assert_close(learner.loss(sample)[0].detach(), expected)


@pytest.mark.parametrize("name", ["iql", "vdn", "qmix"])
def test_shifted_and_scaled_values_have_the_targets_of_the_task_as_it_is(name: str) -> None:
    """In units of reward r + 0.9 times what follows, nothing after the end, where the shift is 20 and the scale 4."""
    learner = build(CONFIGS[name](gamma=0.9, double=False))
    learner.policy.value_shift.fill_(20.0)
    learner.policy.value_scale.fill_(4.0)
    sample = sample_of()
    going_on = ~sample["next", "a", "terminated"][..., 0]
    with torch.no_grad():
        following = learner.targets["actor"](sample["next", "a", "observation"]).amax(-1)
        if learner.policy.mixer is not None:
            following = learner.targets["mixer"](following * going_on, sample["next", "state"])[:, None].expand(-1, 3)
    expected = sample["next", "a", "reward"][..., 0] + 0.9 * torch.where(going_on, 4 * following + 20, 0.0)
    torch.testing.assert_close(learner.loss(sample)[1]["target_mean"], expected.mean())


def filled(config: IQLConfig, rollout: TensorDict, env: EnvSpec) -> QLearner:
    """One that has remembered a rollout and made its first step."""
    learner = build(config, env)
    learner.update(rollout)
    return learner


@pytest.mark.parametrize("name", ["iql", "vdn"])
def test_rewards_are_measured_when_learning_begins_unless_an_episode_terminated(
    name: str, make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    env = make_env(ActionSpec("discrete", n=(4,)))
    config = CONFIGS[name](gamma=0.9, learning_starts=0, updates=1, batch_size=8)
    policies = {"walker": build(config, env).policy}
    rollout = make_rollout(env, policies)
    terminated = rollout["next", "walker", "terminated"]
    assert terminated.any()
    as_it_is = filled(config, rollout, env).policy
    assert float(as_it_is.value_scale) == 1.0 and float(as_it_is.value_shift) == 0.0
    terminated.zero_()
    reward = rollout["next", "walker", "reward"][..., 0]
    reward = reward if name == "iql" else reward.mean(-1)
    measured = filled(config, rollout, env).policy
    torch.testing.assert_close(measured.value_scale, reward.std(correction=0))
    torch.testing.assert_close(measured.value_shift, 10 * reward.mean())
    rollout["next", "walker", "reward"].fill_(-3.0)
    constant = filled(config, rollout, env).policy
    assert float(constant.value_scale) == 1.0 and float(constant.value_shift) == pytest.approx(-30.0)
    undiscounted = filled(replace(config, gamma=1.0), rollout, env).policy
    assert float(undiscounted.value_shift) == 0.0


@pytest.mark.parametrize("name", ["iql", "vdn"])
def test_learning_begins_when_an_agent_has_acted(
    name: str, make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    """As in games of turns none of which has ended yet: there is no reward to measure, and nothing to learn from."""
    env = make_env(ActionSpec("discrete", n=(4,)))
    learner = build(CONFIGS[name](gamma=0.9, learning_starts=0, updates=1, batch_size=8), env)
    rollout = make_rollout(env, {"walker": learner.policy}, steps=6)
    rollout["walker", "acting"].zero_()
    assert learner.update(rollout) == {"updates": 0.0, "replay_frames": 24.0} and learner.steps == 0
    rollout["walker", "acting"][0] = True
    assert learner.update(rollout)["updates"] == 1.0
    reward = rollout["next", "walker", "reward"][0, ..., 0]
    reward = reward if name == "iql" else reward.mean(-1)
    torch.testing.assert_close(learner.policy.value_shift, 10 * reward.mean())


def test_forbidden_choices_are_not_bootstrapped_from() -> None:
    learner = build(IQLConfig(gamma=1.0, double=False))
    sample = sample_of(1)
    sample["next", "a", "terminated"] = torch.zeros(1, 3, 1, dtype=torch.bool)
    allowed = torch.zeros(1, 3, 4, dtype=torch.bool)
    allowed[..., 2] = True
    sample["next", "a", "action_mask"] = allowed
    _, metrics = learner.loss(sample)
    following = learner.targets["actor"](sample["next", "a", "observation"])[0, :, 2]
    torch.testing.assert_close(
        metrics["target_mean"], (sample["next", "a", "reward"][0, :, 0] + following).mean().detach()
    )


@pytest.mark.parametrize("burn_in", [0, 2])
def test_recurrent_values_are_those_of_stepping_through(burn_in: int) -> None:
    """Q of each moment and of what was seen next, an episode's end inside the sequence included."""
    model = GRUConfig(hidden=(8,), recurrent_size=6)
    learner = build(IQLConfig(gamma=0.9, sequence_length=5, burn_in=burn_in), model=model)
    parts = [sample_of(3, seed=seed) for seed in range(5)]
    sample: Sample = {key: torch.stack([part[key] for part in parts], 1) for key in parts[0]}
    sample["is_init"] = torch.zeros(3, 5, 1, dtype=torch.bool)
    sample["is_init"][0, 3] = sample["is_init"][2, 1] = True
    sample["a", "recurrent"] = torch.randn(3, 3, 1, 6)
    states = {"own": sample["a", "recurrent"], "slow": sample["a", "recurrent"]}
    errors = []
    with torch.no_grad():
        for t in range(5):
            begins = sample["is_init"][:, t, :, None, None]
            following, q = {}, {}
            for which, actor in (("own", learner.policy.actor), ("slow", learner.targets["actor"])):
                q[which], states[which] = actor.step(
                    sample["a", "observation"][:, t], torch.where(begins, 0.0, states[which])
                )
                following[which] = actor.step(sample["next", "a", "observation"][:, t], states[which])[0]
            best = following["own"].argmax(-1, keepdim=True)
            continues = ~sample["next", "a", "terminated"][:, t, :, 0]
            target = (
                sample["next", "a", "reward"][:, t, :, 0] + 0.9 * continues * following["slow"].gather(-1, best)[..., 0]
            )
            chosen = q["own"].gather(-1, sample["a", "action"][:, t].unsqueeze(-1))[..., 0]
            errors.append((chosen - target).square())
    torch.testing.assert_close(learner.loss(sample)[0].detach(), torch.stack(errors[burn_in:]).mean())


@pytest.mark.parametrize("burn_in", [0, 2])
def test_replayed_states_are_those_of_the_game_where_rollouts_cut_turns(
    burn_in: int, make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    """The turns that a rollout cuts were played, though their result is unknown. Sequences of 5 steps go over the cuts
    at 8 and 16; with a buffer of one rollout no step can wait for the next one.
    """
    env = replace(make_env(ActionSpec("discrete", n=(4,))), simultaneous=False)
    config = IQLConfig(sequence_length=5, burn_in=burn_in, batch_size=8, buffer_frames=32)
    learner = build(config, env, GRUConfig(hidden=(8,), recurrent_size=6))
    actor, rollout = learner.policy.actor, make_rollout(env, {"walker": learner.policy}, steps=24)
    acting, observation = torch.rand(4, 24, 3) < 0.5, rollout["walker", "observation"]
    rollout["walker", "acting"] = acting
    state, q = torch.zeros(4, 3, 1, 6), []
    with torch.no_grad():
        for t in range(24):
            state = torch.where(rollout["is_init"][:, t, :, None, None], 0.0, state)
            rollout["walker", "recurrent"][:, t] = state
            of_step, after = actor.step(observation[:, t], state)
            q.append(of_step)
            state = torch.where(acting[:, t, :, None, None], after, state)
    for start in range(0, 24, 8):
        learner.store(Rollout(rollout[:, start : start + 8].to_dict(), (4, 8)))
    sample = learner.replay.sample(50)
    replayed = learner._q_values(sample)[0].detach()
    for index, first in enumerate(sample["walker", "observation"][:, 0]):
        (where,) = (observation == first).flatten(2).all(-1).nonzero().tolist()
        steps = slice(where[1] + burn_in, where[1] + 5)
        expected, acted = torch.stack(q, 1)[where[0], steps], acting[where[0], steps]
        torch.testing.assert_close(replayed[index][acted], expected[acted])


def trained(env: str, algorithm: str, *overrides: str, iterations: int) -> Loop:
    fixed = ("algorithm.learning_starts=0", "algorithm.updates=20", "algorithm.buffer_frames=4000", "algorithm.lr=5e-3")
    more = ("algorithm.target_every=25", "algorithm.batch_size=64", "n_envs=16", "rollout_steps=8", "model.hidden=[32]")
    experiment = Experiment.compose(f"env={env}", f"algorithm={algorithm}", *fixed, *more, *overrides)
    loop = Loop(experiment, experiment.env.build(16), torch.device("cpu"))
    loop.begin(0)
    for _ in range(iterations):
        loop.advance()
    return loop


def check_answers(loop: Loop, gamma: float, tolerance: float) -> None:
    """Values and actions of every moment that the best policy meets."""
    env = loop.experiment.env
    assert isinstance(env, GameConfig)
    (group,) = loop.env.spec.groups
    policy = loop.policies[group.name]
    for answer in env.answers(gamma):
        observation = torch.tensor(answer.observation).unsqueeze(0)
        values = policy.value({group.name: observation}, state=observation.flatten(1))[0][0]
        actions = policy.act(observation, explore=False).action[0]
        for agent, (value, action) in enumerate(zip(answer.value, answer.action)):
            assert value is None or abs(values[agent] - value) < tolerance, (answer, values)
            assert action is None or actions[agent] == action, (answer, actions)


@pytest.mark.parametrize(
    ("env", "gamma"),
    [
        ("probe/constant", 0.9),
        ("probe/constant env.endless=true", 0.5),
        ("probe/discounting", 0.5),
        ("probe/constant env.endless=true algorithm.n_steps=3", 0.5),
        ("probe/discounting algorithm.n_steps=2", 0.5),
        ("probe/match", 0.9),
        ("probe/credit", 0.7),
        ("probe/dying", 0.9),
        ("probe/echo", 0.9),
    ],
)
def test_iql_finds_the_known_values(env: str, gamma: float) -> None:
    """Endless episodes that are cut bootstrap; turns skip the other player's moves; the dead leave the living alone."""
    every = ("algorithm.epsilon_end=1.0", f"algorithm.gamma={gamma}")
    check_answers(trained(*env.split()[:1], "iql", *env.split()[1:], *every, iterations=16), gamma, 0.1)


def test_recurrent_iql_finds_the_known_values() -> None:
    every = ("algorithm.epsilon_end=1.0", "algorithm.gamma=0.7", "model=gru", "model.recurrent_size=16")
    loop = trained("probe/match", "iql", *every, "algorithm.sequence_length=4", iterations=12)
    check_answers(loop, 0.7, 0.15)


TWO_STEP = ("algorithm.epsilon_end=1.0", "algorithm.gamma=0.99")


def test_qmix_plays_the_two_step_game_for_8() -> None:
    """Under even exploration. Source: Rashid et al. 2018, section 5, tables 1 and 2."""
    check_answers(trained("matrix/two_step", "qmix", *TWO_STEP, iterations=16), 0.99, 0.1)


def test_vdn_plays_the_two_step_game_for_7() -> None:
    """Under even exploration. VDN's nearest sum to the game (0 1; 1 8) is (-1.5 2.5; 2.5 6.5), which 7 beats.

    Source: Rashid et al. 2018, section 5, tables 1 and 2.
    """
    vdn = trained("matrix/two_step", "vdn", *TWO_STEP, iterations=24)
    start, risky = (torch.tensor(a.observation).unsqueeze(0) for a in vdn.experiment.env.answers(0.99))  # type: ignore[attr-defined]
    policy = vdn.policies["agent"]
    assert policy.act(start, explore=False).action[0, 0] == 0  # to the safe game
    assert abs(policy.value({"agent": start})[0][0, 0] - 0.99 * 7) < 0.3
    assert abs(policy.value({"agent": risky})[0][0, 0] - 6.5) < 0.5


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(("algorithm=iql",), id="iql"),
        pytest.param(("algorithm=qmix", "algorithm.target_every=7"), id="qmix"),
        pytest.param(("algorithm=vdn", "model=gru", "algorithm.sequence_length=6"), id="vdn, recurrent"),
    ],
)
def test_a_resumed_training_gives_the_same_bits(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    """The memory wraps around before and after the checkpoint, and episodes end inside it."""
    sizes = ("algorithm.buffer_frames=150", "algorithm.batch_size=32", "algorithm.updates=3")
    every = ("algorithm.learning_starts=64", "n_envs=4", "rollout_steps=16", "checkpoint_every=4", "model.hidden=[16]")
    experiment = Experiment.compose("env=mpe/simple_spread", *overrides, *sizes, *every)
    with Trainer(experiment, Run.create(tmp_path / "whole", experiment)) as trainer:
        reports = [next(trainer) for _ in range(9)]
        expected = {key: value.clone() for key, value in trainer.policies["agent"].state_dict().items()}
    with Trainer(experiment, Run.create(tmp_path / "halves", experiment)) as trainer:
        for _ in range(6):
            next(trainer)
        trainer._saver.iteration = trainer.iteration  # as a kill would: two iterations are lost
    torch.manual_seed(5)
    with Trainer.resume(Run.open(tmp_path / "halves")) as trainer:
        assert trainer.iteration == 4
        again = [next(trainer) for _ in range(5)]
        actual = trainer.policies["agent"].state_dict()
    assert [report.learning for report in again] == [report.learning for report in reports[4:]]
    assert actual.keys() == expected.keys() and all(torch.equal(actual[key], expected[key]) for key in actual)


def test_epsilon_falls_as_a_line_over_frames() -> None:
    learner = build(IQLConfig(epsilon_start=0.9, epsilon_end=0.1, epsilon_frames=1000, learning_starts=100))
    for frames, epsilon in ((0, 1.0), (99, 1.0), (100, 0.82), (500, 0.5), (1000, 0.1), (5000, 0.1)):
        learner.frames = frames
        learner.explore()
        assert float(learner.policy.epsilon) == pytest.approx(epsilon)


def test_what_cannot_be_learned_says_so() -> None:
    continuous = EnvSpec(
        "test/c", (GroupSpec("a", ("a_0",), ObservationSpec((2,)), ActionSpec("continuous", low=(-1.0,), high=(1.0,))),)
    )
    several = EnvSpec(
        "test/m", (GroupSpec("a", ("a_0",), ObservationSpec((2,)), ActionSpec("multi_discrete", (2, 3))),)
    )
    turns = EnvSpec("test/t", (GROUP,), simultaneous=False)
    with pytest.raises(ConfigError, match="continuous actions; it takes discrete"):
        build(IQLConfig(), continuous)
    with pytest.raises(ConfigError, match="multi_discrete actions; it takes discrete"):
        build(QMIXConfig(), several)
    with pytest.raises(ConfigError, match="wait for their turns"):
        build(VDNConfig(), turns)
    with pytest.raises(ConfigError, match="n_steps=3 needs every agent to act at every step"):
        build(IQLConfig(n_steps=3), turns)
    with pytest.raises(ConfigError, match="n_steps=3 needs feed-forward networks; got gru"):
        build(IQLConfig(n_steps=3), model=GRUConfig())
    with pytest.raises(ConfigError, match="at most 15 of sequence_length=16"):
        build(IQLConfig(burn_in=16), model=GRUConfig())
