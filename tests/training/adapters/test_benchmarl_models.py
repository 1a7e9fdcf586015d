"""BenchMARL's convolutions, sets, graphs and sequences, and its discrete SAC, compared with BenchMARL's own outputs.

`data/*/expected.npz` is of BenchMARL's and torchrl's own networks and losses: benchmarks/drivers/benchmarl_agents.py.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.errors import CheckpointError, ConfigError
from marlnb.models.adapters.benchmarl_graphs import graph_layer
from marlnb.models.adapters.safe_unpickle import Record
from marlnb.models.hooks.apply_edits import edited
from marlnb.training.policies.agents import Agents
from tests.training.adapters.pictures import Pictures

HERE = Path(__file__).parent / "data"
OPTIONS: dict[str, dict[str, Any]] = {"pictures": {}, "bytes": {"as_bytes": True}, "sets": {"shape": (4, 3)}}
MEMORYLESS = [
    "ippo_cnn_pictures",
    "mappo_cnn_pictures",
    "mappo_cnn_unshared_bytes",
    "mappo_cnn_each_pictures",
    "ippo_deepsets_sets",
    "mappo_deepsets_unshared_sets",
    "mappo_deepsets_each_sets",
    "mappo_deepsets_navigation",
    "masac_deepsets_navigation",
    "mappo_gnn_navigation",
    "mappo_gnn_each_navigation",
    "mappo_gat_unshared_navigation",
    "mappo_sequence_unshared_navigation",
]
SOFT = [
    "isac_cnn_pictures",
    "isac_unshared_simple_spread",
    "masac_simple_spread",
    "masac_discrete_navigation",
    "masac_decoupled_simple_spread",
    "masac_decoupled_navigation",
]


def opened(case: str, path: Path) -> tuple[Agents, Any, str, dict[str, Any]]:
    """The agents, their only policy and its group, and BenchMARL's outputs."""
    end = case.rpartition("_")[2]
    env: Any = partial(Pictures, **OPTIONS[end]) if end in OPTIONS else None
    agents = mnb.agents_from_benchmarl(HERE / case, env, path=path)
    ((group, policy),) = agents.by_group.items()
    theirs = {name: torch.from_numpy(values) for name, values in np.load(HERE / case / "expected.npz").items()}
    return agents, policy, group, theirs


@pytest.mark.parametrize("case", MEMORYLESS)
def test_it_says_what_benchmarl_says(case: str, tmp_path: Path) -> None:
    _, policy, group, theirs = opened(case, tmp_path)
    observation = theirs[f"{group}/observation"]
    logits, _ = policy.logits(observation)
    if f"{group}/loc" in theirs:
        mean, log_std = logits.chunk(2, dim=-1)
        torch.testing.assert_close(mean, theirs[f"{group}/loc"], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(log_std.exp(), theirs[f"{group}/scale"], atol=1e-6, rtol=1e-6)
    else:
        torch.testing.assert_close(logits, theirs[f"{group}/logits"], atol=1e-5, rtol=1e-6)
        assert float(logits.detach().std()) > 0.01
    if f"{group}/q" in theirs:
        judged = policy.action_critic({group: observation}, None, theirs[f"{group}/action"])
        torch.testing.assert_close(judged, theirs[f"{group}/q"], atol=1e-6, rtol=1e-6)
    else:
        values, _ = policy.value({group: observation})
        torch.testing.assert_close(values, theirs[f"{group}/value"][..., 0], atol=1e-6, rtol=1e-6)
    assert policy.cross_agent == ("gnn_" in case or "gat_" in case or "sequence" in case)


@pytest.mark.parametrize("case", ["ippo_sequence_pictures", "mappo_sequence_pictures"])
def test_sequences_that_remember_say_what_benchmarl_says(case: str, tmp_path: Path) -> None:
    _, policy, group, theirs = opened(case, tmp_path)
    memory: Any = None
    judges: Any = None
    for t in range(4):
        observation = theirs[f"{group}/observation"][:, t]
        logits, memory = policy.logits(observation, recurrent=memory)
        torch.testing.assert_close(logits, theirs[f"{group}/logits"][:, t], atol=1e-6, rtol=1e-6)
        values, judges = policy.value({group: observation}, recurrent=judges)
        torch.testing.assert_close(values, theirs[f"{group}/value"][:, t, :, 0], atol=1e-6, rtol=1e-6)
    assert memory.abs().max() > 0 and judges.abs().max() > 0


@pytest.mark.parametrize("case", SOFT)
def test_critics_of_discrete_sac_say_what_torchrls_loss_makes_of_them(case: str, tmp_path: Path) -> None:
    agents, policy, group, theirs = opened(case, tmp_path)
    seen, state = {group: theirs[f"{group}/observation"]}, theirs.get("state")
    logits, _ = policy.logits(seen[group])
    torch.testing.assert_close(logits, theirs[f"{group}/logits"], atol=1e-6, rtol=1e-6)
    judged = policy.action_critic(seen, state, logits)
    torch.testing.assert_close(judged, theirs[f"{group}/q"], atol=1e-6, rtol=1e-6)
    values, _ = policy.value(seen, state=state)
    torch.testing.assert_close(values, theirs[f"{group}/soft_value"], atol=1e-6, rtol=1e-6)
    expected = (logits.softmax(-1) * judged.amin(0)).sum(-1)
    assert (values - expected).min() > 0.1  # the entropy that the policy is paid for
    assert policy.has_critic and {s.name for s in policy.sites()} > {f"{group}/critic/head", f"{group}/critic_2/head"}
    recording = mnb.record(agents, episodes=1, sites=f"{group}/critic*/head", progress=False)
    value = recording.steps(group, "value").to_numpy()
    assert np.isfinite(value).all() and value.std() > 0


EXPLAINED = {
    "mappo_cnn_unshared_bytes": "hidden_3",
    "ippo_deepsets_sets": "pooled",
    "mappo_gnn_navigation": "head",
    "mappo_gat_unshared_navigation": "head",
    "mappo_sequence_unshared_navigation": "part_3.hidden_1",
    "mappo_sequence_pictures": "part_2.gru",
}


@pytest.mark.parametrize("case", EXPLAINED)
def test_they_are_recorded_explained_and_edited(case: str, tmp_path: Path) -> None:
    agents, policy, group, _ = opened(case, tmp_path)
    site = f"{group}/actor/{EXPLAINED[case]}"
    recording = mnb.record(agents, episodes=3, sites="*", progress=False)
    assert recording[site].to_numpy().std() > 0
    observation = torch.from_numpy(recording.steps(group, "observation").to_numpy())
    recurrent = torch.from_numpy(recording.recurrent(group).to_numpy()) if policy.recurrent_shape else None
    logits, _ = policy.logits(observation, recurrent=recurrent)
    recorded = recording.steps(group, "logits").to_numpy()
    np.testing.assert_allclose(recorded, logits.detach().numpy(), atol=1e-5)
    target = 0 if policy.group.action.kind == "continuous" else None
    attribution = mnb.attribute(
        recording,
        group=group,
        to="action",
        target=target,
        steps=[0, 3],
        n_steps=200,
        policies=agents.by_group,
        progress=False,
    )
    assert np.nanmax(np.abs(attribution.convergence_delta)) < 1e-2 and np.nanmax(np.abs(attribution.values)) > 0
    with edited(agents.by_group, [mnb.Ablate(site, agents=(f"{group.removesuffix('s')}_1",))]):
        wiped, _ = policy.logits(observation, recurrent=recurrent)
    moved = (wiped - logits).abs().amax((0, 2))
    assert moved[1] > 0
    if not policy.cross_agent or "head" in site or "part_3" in site:  # behind the last message, others hear nothing
        assert moved[0] == moved[2] == 0


def test_what_an_agent_hears_is_what_the_graph_brings(tmp_path: Path) -> None:
    """Of the default convolution, by hand: the others' observations summed, through one map, and its own."""
    _, policy, group, theirs = opened("mappo_gnn_navigation", tmp_path)
    (file,) = (HERE / "mappo_gnn_navigation" / "checkpoints").iterdir()
    tensors = torch.load(file, weights_only=True)[f"loss_{group}"]
    rel, bias, root = (
        next(t for name, t in tensors.items() if name.startswith("actor") and name.endswith(end))
        for end in ("lin_rel.weight", "lin_rel.bias", "lin_root.weight")
    )
    seen = theirs[f"{group}/observation"]
    others = torch.stack([seen[:, [1, 2]].sum(1), seen[:, [0, 2]].sum(1), seen[:, [0, 1]].sum(1)], dim=1)
    torch.testing.assert_close(policy.network(seen)[0], others @ rel.T + bias + seen @ root.T)


def record(kind: str, **state: Any) -> Record:
    made = type(kind.rpartition(".")[2], (Record,), {"home": kind})()
    made.state = state
    return made


def graph(**options: Any) -> Record:
    named: Any = {"topology": "full", "self_loops": False, "gnn_class": type("G", (Record,), {"home": "x.GATv2Conv"})}
    return record("benchmarl.models.gnn.GnnConfig", **{**named, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topology": "from_pos", "position_key": "pos"}, "topology full and empty without such keys"),
        ({"gnn_class": type("G", (Record,), {"home": "x.GCNConv"})}, "GraphConv, GATv2Conv"),
        ({"gnn_kwargs": {"edge_dim": 3}}, r"options \['edge_dim'\]"),
        ({"gnn_kwargs": {"heads": 2}}, "2 concatenated heads"),
    ],
)
def test_graphs_that_cannot_be_read_are_refused_in_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        graph_layer(graph(**options), {}, 3, 4, central=False, where="the actor")


def test_mismatches_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reads images \[x, y, channel\]; the environment gives \[4, 3\]"):
        mnb.agents_from_benchmarl(HERE / "ippo_cnn_pictures", partial(Pictures, (4, 3)), path=tmp_path)
    with pytest.raises(ConfigError, match="reads 2 channels; the environment gives 3 agents 5"):
        mnb.agents_from_benchmarl(HERE / "ippo_cnn_pictures", partial(Pictures, (6, 6, 5)), path=tmp_path)
    with pytest.raises(ConfigError, match=r"reads sets \[element, feature\]; the environment gives \[12\]"):
        mnb.agents_from_benchmarl(HERE / "ippo_deepsets_sets", partial(Pictures, (12,)), path=tmp_path)
    copy = shutil.copytree(HERE / "ippo_deepsets_sets", tmp_path / "copy")
    (file,) = (copy / "checkpoints").iterdir()
    loaded = torch.load(file, weights_only=True)
    loaded["loss_agent"] = {k: v for k, v in loaded["loss_agent"].items() if "global_nn.2.bias" not in k}
    torch.save(loaded, file)
    with pytest.raises(CheckpointError, match="its configuration says"):
        mnb.agents_from_benchmarl(copy, partial(Pictures, (4, 3)), path=tmp_path)
