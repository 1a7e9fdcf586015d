"""TorchrlMixer: the QMixer of torchrl, used by BenchMARL's QMIX, with a site at its hidden layer."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from marlnb.errors import CheckpointError, ShapeError
from marlnb.models.hooks.sites import Site
from marlnb.models.networks.inputs import features
from marlnb.models.networks.mixers import Mixer
from marlnb.specs import EnvSpec, GroupSpec

HYPER = ("hyper_w_1", "hyper_b_1", "hyper_w_final")


class TorchrlMixer(Mixer):
    """Mixes the agents' Q values with non-negative weights that depend on the state.

    `Q_total = |w_final(s)| . elu(|W_1(s)| q + b_1(s)) + V(s)`. The state s is the environment's. If it has none, s
    is the group's concatenated observations. The site `<group>/mixer/hidden` has an agent axis of size 1.

    Args:
        group: the group whose Q values are mixed.
        env: the environment.
        tensors: by the names in torchrl's QMixer: `hyper_w_1.weight`, ..., `V.2.bias`.
    Raises:
        CheckpointError: tensors are missing, or the state has another size.
    Source: Rashid et al. 2018, section 4 (arXiv:1803.11485), as in `torchrl.modules.QMixer`.
    """

    def __init__(self, group: GroupSpec, env: EnvSpec, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.group, self.state_axes = group, None if env.state_shape is None else len(env.state_shape)
        self.reads = () if self.state_axes is not None else (group.name,)
        required = [f"{name}.{kind}" for name in (*HYPER, "V.0", "V.2") for kind in ("weight", "bias")]
        missing = [name for name in required if name not in tensors]
        if missing:
            raise CheckpointError(f"the mixer of {group.name!r} has no tensors {missing}; it has {sorted(tensors)}")
        size = group.n_agents * group.observation.size
        if env.state_shape is not None:
            size = torch.Size(env.state_shape).numel()
        if tensors["V.0.weight"].shape[-1] != size:
            raise CheckpointError(
                f"the mixer of {group.name!r} reads {tensors['V.0.weight'].shape[-1]} features; {env.name} has {size}"
            )
        self.hyper_w_1, self.hyper_b_1, self.hyper_w_final = (_linear(tensors, name) for name in HYPER)
        self.bias = nn.Sequential(_linear(tensors, "V.0"), nn.ReLU(), _linear(tensors, "V.2"))
        self.units, self.hidden = len(tensors["hyper_b_1.bias"]), nn.ELU()

    def inputs(self, observations: Mapping[str, Tensor], state: Tensor | None) -> Tensor:
        """`[..., feature]`."""
        if self.state_axes is None:
            return features(observations[self.group.name], len(self.group.observation.shape)).flatten(-2)
        if state is None:
            raise ShapeError(f"the mixer of {self.group.name!r} needs the environment's state; got state=None")
        return features(state, self.state_axes)

    def forward(self, q: Tensor, inputs: Tensor | None) -> Tensor:
        assert inputs is not None
        first = self.hyper_w_1(inputs).abs().unflatten(-1, (self.group.n_agents, self.units))
        mixed = (q.unsqueeze(-1) * first).sum(-2, keepdim=True) + self.hyper_b_1(inputs).unsqueeze(-2)
        hidden = self.hidden(mixed).squeeze(-2)
        total: Tensor = (hidden * self.hyper_w_final(inputs).abs()).sum(-1) + self.bias(inputs).squeeze(-1)
        return total

    def sites(self) -> list[Site]:
        name = f"{self.group.name}/mixer/hidden"
        return [Site(name, self.hidden, self.group.n_agents, self.units, "hidden", shared_forward=True)]


def _linear(tensors: Mapping[str, Tensor], name: str) -> nn.Linear:
    weight = tensors[f"{name}.weight"]
    linear = nn.Linear(weight.shape[1], weight.shape[0])
    linear.weight, linear.bias = nn.Parameter(weight), nn.Parameter(tensors[f"{name}.bias"])
    return linear
