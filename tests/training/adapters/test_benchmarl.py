"""BenchMARL's experiments: what is read equals what BenchMARL's own policies and critics said of the same numbers."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchrl.modules import QMixer, VDNMixer

import marlnb as mnb
from marlnb.errors import AnalysisError, CheckpointError, ConfigError
from marlnb.models.adapters.safe_unpickle import Record, read_records

HERE = Path(__file__).parent / "data"
SPREAD = Path(__file__).parents[3] / "data" / "benchmarl_simple_spread"
CASES = {
    "mappo, shared": SPREAD,
    "mappo, unshared": HERE / "mappo_unshared_simple_spread",
    "ippo, unshared, continuous": HERE / "ippo_unshared_navigation",
    "iql": HERE / "iql_simple_spread",
    "qmix, unshared": HERE / "qmix_unshared_simple_spread",
    "masac, continuous": HERE / "masac_navigation",
    "isac, unshared, continuous": HERE / "isac_unshared_navigation",
    "iddpg": HERE / "iddpg_navigation",
    "maddpg, unshared": HERE / "maddpg_unshared_navigation",
    "maddpg, with a state": HERE / "maddpg_simple_spread",
    "vdn": HERE / "vdn_simple_spread",
}


@pytest.mark.parametrize("case", CASES)
def test_it_says_what_benchmarl_says(case: str, tmp_path: Path) -> None:
    agents = mnb.agents_from_benchmarl(CASES[case], path=tmp_path)
    theirs: dict[str, Any] = dict(np.load(CASES[case] / "expected.npz"))
    ((group, policy),) = agents.by_group.items()
    observation = torch.from_numpy(theirs[f"{group}/observation"])
    logits, _ = policy.logits(observation)
    if "continuous" in case:
        mean, log_std = logits.chunk(2, dim=-1)
        np.testing.assert_allclose(mean.detach(), theirs[f"{group}/loc"], atol=1e-6)
        np.testing.assert_allclose(log_std.exp().detach(), theirs[f"{group}/scale"], atol=1e-6)
    elif "ddpg" in case:
        middle = 0.5 if "state" in theirs else 0.0  # of the bounds: TanhDelta shifts its parameter by it
        shifted = theirs[f"{group}/param"] + middle
        np.testing.assert_allclose(logits.detach(), shifted, atol=1e-6)
        chosen = policy.act(observation, explore=True).action  # forces within [-1, 1], or [0, 1]
        np.testing.assert_allclose(chosen, middle + (1 - middle) * np.tanh(shifted), atol=1e-6)
    else:
        expected = theirs.get(f"{group}/logits", theirs.get(f"{group}/action_value"))
        np.testing.assert_allclose(logits.detach(), expected, atol=1e-6)
        greedy = policy.act(observation, explore=False).action
        np.testing.assert_array_equal(greedy, expected.argmax(-1))
    assert agents.networks[group] == ([0, 1, 2] if "unshared" in case else [0, 0, 0])
    if f"{group}/value" in theirs:
        state = torch.from_numpy(theirs["state"]) if "state" in theirs else None
        values, _ = policy.value({group: observation}, state=state)
        np.testing.assert_allclose(values.detach(), theirs[f"{group}/value"][..., 0], atol=1e-6)
    if f"{group}/q" in theirs:
        action = torch.from_numpy(theirs[f"{group}/action"])
        state = torch.from_numpy(theirs["state"]) if "state" in theirs else None
        judged = policy.action_critic({group: observation}, state, action)
        np.testing.assert_allclose(judged.detach(), theirs[f"{group}/q"], atol=1e-6)
        greedy = policy.act(observation, explore=False).action
        values, _ = policy.value({group: observation}, state=state)
        torch.testing.assert_close(values, policy.action_critic({group: observation}, state, greedy).amin(0))
        assert len({s.name for s in policy.sites() if s.name.endswith("hidden_1")}) == 1 + len(judged)
    assert policy.has_critic == (case != "iql")


@pytest.mark.parametrize("case", ["qmix, unshared", "vdn"])
def test_mixers_say_what_torchrls_say(case: str, tmp_path: Path) -> None:
    agents = mnb.agents_from_benchmarl(CASES[case], path=tmp_path)
    policy = agents.by_group["agent"]
    observation = torch.from_numpy(np.load(CASES[case] / "expected.npz")["agent/observation"])
    logits, _ = policy.logits(observation)
    seen = observation.flatten(1)
    values, _ = policy.value({"agent": observation}, state=seen)
    theirs: Any = VDNMixer(n_agents=3, device="cpu")
    if case != "vdn":
        theirs = QMixer(state_shape=(54,), mixing_embed_dim=32, n_agents=3, device="cpu")
        (file,) = (CASES[case] / "checkpoints").iterdir()
        tensors = torch.load(file, weights_only=True)["loss_agent"]
        start = "mixer_network_params.module."
        theirs.load_state_dict({k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)})
    best = logits.amax(-1, keepdim=True)
    total = theirs(best) if case == "vdn" else theirs(best, seen)
    torch.testing.assert_close(values, total.expand(-1, 3))
    recording = mnb.record(agents, episodes=3, sites="*", progress=False)
    shares = mnb.decompose_value(recording, "agent", policies=agents.by_group)
    np.testing.assert_allclose(shares.share.sum(1) + shares.rest, shares.total, rtol=1e-4, atol=1e-4)
    if case != "vdn":
        assert recording["agent/mixer/hidden"].to_numpy().shape == (300, 3, 32)
        return
    taken = torch.from_numpy(recording.steps("agent", "logits").to_numpy()).amax(-1)  # greedy episodes
    np.testing.assert_allclose(shares.share, taken, atol=1e-6)


RECURRENT = {
    "ippo, shared, two layers, continuous": HERE / "ippo_gru_navigation",
    "mappo, unshared": HERE / "mappo_lstm_unshared_simple_spread",
    "mappo, shared, without a state, continuous": HERE / "mappo_gru_navigation",
}


@pytest.mark.parametrize("case", RECURRENT)
def test_what_remembers_says_what_benchmarl_says_of_sequences(case: str, tmp_path: Path) -> None:
    policies = mnb.agents_from_benchmarl(RECURRENT[case], path=tmp_path).by_group
    expected: dict[str, Any] = dict(np.load(RECURRENT[case] / "expected.npz"))
    ((group, policy),) = policies.items()
    memory, judges = None, None
    for t in range(4):
        observation = torch.from_numpy(expected[f"{group}/observation"][:, t])
        logits, memory = policy.logits(observation, recurrent=memory)
        if "continuous" in case:
            mean, log_std = logits.chunk(2, dim=-1)
            np.testing.assert_allclose(mean.detach(), expected[f"{group}/loc"][:, t], atol=1e-6)
            np.testing.assert_allclose(log_std.exp().detach(), expected[f"{group}/scale"][:, t], atol=1e-6)
        else:
            np.testing.assert_allclose(logits.detach(), expected[f"{group}/logits"][:, t], atol=1e-6)
        state = torch.from_numpy(expected["state"][:, t]) if "state" in expected else None
        values, judges = policy.value({group: observation}, state=state, recurrent=judges)
        np.testing.assert_allclose(values.detach(), expected[f"{group}/value"][:, t, :, 0], atol=1e-6)


def test_what_remembers_is_recorded_explained_and_edited(tmp_path: Path) -> None:
    agents = mnb.agents_from_benchmarl(RECURRENT["mappo, unshared"], path=tmp_path)
    recording = mnb.record(agents, episodes=4, sites="*", progress=False)
    names = [f"agent/actor/{x}" for x in ("cell", "lstm", "hidden_1", "head")]
    assert recording.sites[:4] == names and "agent/critic/lstm" in recording.sites
    entering = recording.recurrent("agent").sel(episode=2).to_numpy()  # [row, agent, (hidden, cell), unit]
    hidden = recording["agent/actor/lstm"].sel(episode=2).to_numpy()
    assert not entering[0].any()
    np.testing.assert_array_equal(entering[1:, :, 0], hidden[:-1])
    np.testing.assert_array_equal(entering[1:, :, 1], recording["agent/actor/cell"].sel(episode=2).to_numpy()[:-1])
    attribution = mnb.attribute_over_time(
        recording, group="agent", to="action", t=20, lookback=6, policies=agents.by_group
    )  # fmt: skip
    assert np.nanmax(np.abs(attribution.convergence_delta)) < 1e-3 and not attribution.warnings
    value = mnb.attribute(recording, group="agent", to="value", steps=[0, 9], policies=agents.by_group, progress=False)
    assert value.sources == "state" and np.abs(value.convergence_delta).max() < 1e-3 and np.abs(value.values).max() > 0
    with pytest.raises(AnalysisError, match="needs sources='state'"):
        mnb.attribute(
            recording, group="agent", to="value", steps=[0], sources="all", policies=agents.by_group, progress=False
        )
    wiped = mnb.intervene(agents, mnb.Ablate("agent/actor/lstm", agents=("agent_1",)), episodes=2)
    moved = [wiped.of("tv_direct", f"agent_{k}").difference for k in range(3)]
    assert moved[1] > 0 and moved[0] == moved[2] == 0


def test_agents_of_an_experiment_are_recorded_with_their_critic(tmp_path: Path) -> None:
    agents = mnb.agents_from_benchmarl(SPREAD, path=tmp_path)
    assert agents.source == "BenchMARL mappo checkpoint_60000.pt"
    recording = mnb.record(agents, episodes=3, sites="*", progress=False)
    observation = torch.from_numpy(recording.steps("agent", "observation").to_numpy())
    first = agents.by_group["agent"].network.layers[0]
    np.testing.assert_allclose(
        recording["agent/actor/hidden_1"].to_numpy(), first(observation).detach().numpy(), atol=1e-6
    )
    hidden = recording["agent/critic/hidden_2"].to_numpy()
    assert hidden.shape == (300, 3, 32)  # max_cycles of its configuration: 100
    np.testing.assert_array_equal(hidden[:, 0], hidden[:, 2])  # one critic for all
    joint = observation.flatten(1)
    values, _ = agents.by_group["agent"].value({"agent": observation}, state=joint)
    np.testing.assert_allclose(recording.steps("agent", "value").to_numpy(), values.detach().numpy(), atol=1e-5)


def test_an_environment_of_ones_own_is_taken_by_its_groups(tmp_path: Path) -> None:
    from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig

    with pytest.raises(ConfigError, match="reads 18 features"):
        mnb.agents_from_benchmarl(SPREAD, env=SimpleSpreadConfig(N=2), path=tmp_path)
    with pytest.raises(ConfigError, match=r"the experiment \['agent'\]"):
        mnb.agents_from_benchmarl(SPREAD, env="mpe/simple_speaker_listener", path=tmp_path)
    agents = mnb.agents_from_benchmarl(SPREAD, env=SimpleSpreadConfig(), path=tmp_path)  # without its state
    expected = np.load(SPREAD / "expected.npz")
    values, _ = agents.by_group["agent"].value({"agent": torch.from_numpy(expected["agent/observation"])})
    assert values.shape == (16, 3)  # from the observations, all in a row


def test_a_checkpoint_can_be_named_and_damage_is_reported(tmp_path: Path) -> None:
    copy = shutil.copytree(SPREAD, tmp_path / "experiment")
    one = copy / "checkpoints" / "checkpoint_60000.pt"
    assert mnb.agents_from_benchmarl(one).by_group.keys() == {"agent"}
    one.write_bytes(one.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="cannot be read as plain tensors"):
        mnb.agents_from_benchmarl(copy)
    one.unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoints/checkpoint_<frames>\.pt"):
        mnb.agents_from_benchmarl(copy)


class Harm:
    """What a third party's pickle may contain."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.arguments


@pytest.mark.parametrize(
    "harm",
    [
        Harm(os.system, "touch ran"),
        Harm(eval, "open('ran', 'w')"),
        Harm(getattr, os, "getcwd"),
        Harm(exec, "open('ran', 'w')"),
        Harm(io.open, "ran", "w"),
    ],
    ids=["os.system", "eval", "getattr", "exec", "open"],
)
def test_a_pickle_is_not_run(harm: Harm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "config.pkl"
    try:
        file.write_bytes(pickle.dumps(harm))
    except (TypeError, pickle.PicklingError):  # a module cannot be pickled: say it in the pickle's own words
        file.write_bytes(b"cbuiltins\ngetattr\n(cos\nsystem\nS'getcwd'\ntR.")
    with pytest.raises(CheckpointError, match="is not plain data"):
        read_records(file)
    assert not (tmp_path / "ran").exists()


def test_classes_become_records() -> None:
    task, options, algorithm, model, seed, *_ = read_records(SPREAD / "config.pkl")
    assert isinstance(task, Record) and task.home == "benchmarl.environments.pettingzoo.common.PettingZooClass"
    assert task.get("name") == "SIMPLE_SPREAD" and options["N"] == 3 and seed == 0
    assert algorithm.kind == "MappoConfig" and algorithm.get("scale_mapping") == "biased_softplus_1.0"
    assert list(model.get("num_cells")) == [32, 32] and model.get("activation_class").home.endswith("Tanh")
