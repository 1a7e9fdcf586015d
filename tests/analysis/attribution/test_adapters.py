"""Attribution of external networks and of recurrent critics, compared with the module called by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from captum.attr import IntegratedGradients
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential, TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.modules import MultiAgentMLP

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.communication.influence import influence
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.recording.capture.recorder import record
from marlnb.training.adapters.torchrl import agents_from_torchrl
from tests.analysis.conftest import make_run


def test_a_recurrent_critic_is_explained_with_its_recorded_state(tmp_path: Path) -> None:
    options = ("model=mlp", "critic=gru", "algorithm.sequence_length=25", "algorithm=ippo")
    run = make_run(tmp_path / "memory", "mpe/simple_spread", *options)
    with record(run, episodes=4, progress=False) as recording:
        result = attribute(recording, group="agent", to="value", n_steps=20)
        recorded = recording.steps("agent", "value").to_numpy()
        np.testing.assert_allclose(result.score, recorded, rtol=1e-4, atol=1e-4)
        assert result.warnings == ()
        off = influence(recording, "critic", n_steps=5).values[~np.eye(3, dtype=bool)]
        assert (off == 0).all()  # IPPO's critics read their own agent


def test_torchrls_unshared_network_agent_by_agent(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = MultiAgentMLP(
        18, 5, n_agents=3, centralized=False, share_params=False, depth=2, num_cells=16, activation_class=nn.ReLU
    )
    policy = ProbabilisticTensorDictSequential(
        TensorDictModule(net, in_keys=[("agent", "observation")], out_keys=[("agent", "logits")]),
        ProbabilisticTensorDictModule(
            in_keys={"logits": ("agent", "logits")}, out_keys=[("agent", "action")], distribution_class=Categorical
        ),
    )
    agents = agents_from_torchrl(policy, SimpleSpreadConfig(), path=tmp_path / "elsewhere")
    options = {"group": "agent", "to": "logit", "target": 2, "policies": agents.by_group, "n_steps": 20}
    with record(agents, episodes=4, progress=False) as recording:
        sites = [site for site in recording.sites if recording[site].shape[-1] == 16]
        result = attribute(recording, **options)  # type: ignore[arg-type]
        layer = attribute(recording, **options, site=sites[-1])  # type: ignore[arg-type]
        seen = torch.from_numpy(recording.steps("agent", "observation").to_numpy())
    for agent in range(3):
        module, x = plain(net, agent), seen[:, agent]
        mean = x.double().mean(0).float().expand_as(x)
        expected = IntegratedGradients(module).attribute(x, mean, target=2, n_steps=20)
        np.testing.assert_allclose(result.values[:, agent], expected.detach(), atol=2e-6)
        units = module[:4](x).detach()  # the head is linear: weight times distance
        expected = module[4].weight[2] * (units - units.mean(0))
        np.testing.assert_allclose(layer.values[:, agent], expected.detach(), atol=2e-6)


def plain(net: MultiAgentMLP, agent: int) -> nn.Sequential:
    """One agent's network, its parameters taken out by hand."""
    made = nn.Sequential(nn.Linear(18, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5))
    for place in (0, 2, 4):
        part = net.params[str(place)]
        made[place].load_state_dict({"weight": part["weight"][agent].data, "bias": part["bias"][agent].data})
    return made
