"""Integrated gradients of every agent's action over recorded rows, compared with captum called in a loop over agents.

Two loops are measured: one over the joint policy, with a target (agent, choice) for captum, the obvious code for a
network that holds all agents; and one over networks extracted from it by hand, one per agent. The benchmark checks that
all give the same numbers. One torch thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

from benchmarks.table import Row, report
from marlnb.analysis.attribution.batch_attribution import attribute_batch
from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.outputs import Output
from marlnb.analysis.attribution.target import AttributionTarget
from marlnb.analysis.data.rows import RowBatch
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

N_FEATURES, N_CHOICES, N_STEPS = 18, 5, 50
CASES = ((3, 64, True), (3, 256, True), (8, 64, True), (3, 64, False), (8, 256, False))


def setting(n_agents: int, units: int, shared: bool, n_rows: int) -> tuple[ActorCritic, EnvSpec, RowBatch]:
    """A policy of two hidden layers and rows to explain."""
    torch.manual_seed(0)
    agents = tuple(f"agent_{k}" for k in range(n_agents))
    group = GroupSpec("agent", agents, ObservationSpec((N_FEATURES,)), ActionSpec("discrete", n=(N_CHOICES,)))
    env = EnvSpec("benchmark", (group,))
    policy = ActorCritic(group, env, MLPConfig(hidden=(units, units), share_parameters=shared), MLPConfig(hidden=(4,)))
    observation = torch.randn(n_rows, n_agents, N_FEATURES)
    action = torch.randint(N_CHOICES, (n_rows, n_agents))
    return policy.eval(), env, RowBatch({"agent": observation}, action, torch.ones(n_rows, n_agents, dtype=torch.bool))


def ours(policy: ActorCritic, env: EnvSpec, moments: RowBatch, baseline: Tensor) -> np.ndarray:
    target = AttributionTarget(policy, env, Output("action"), tuple(range(policy.group.n_agents)), "own")
    config = AttributionConfig(group="agent", n_steps=N_STEPS)
    return attribute_batch(target, moments, baseline.unsqueeze(0), config)[0]


def joint_loop(policy: ActorCritic, moments: RowBatch, baseline: Tensor, batch: int) -> np.ndarray:
    """captum for agent after agent, each time on the policy of all."""
    x, scores = moments.observations["agent"], []
    method = IntegratedGradients(lambda seen: policy.logits(seen)[0])
    for agent in range(x.shape[1]):
        parts = []
        for start in range(0, len(x), batch):
            rows = slice(start, start + batch)
            target = [(agent, int(choice)) for choice in moments.action[rows, agent]]
            values = method.attribute(x[rows], baseline.expand_as(x[rows]), target=target, n_steps=N_STEPS)
            parts.append(values[:, agent].detach())
        scores.append(torch.cat(parts))
    return torch.stack(scores, dim=1).numpy()


def separate_loop(policy: ActorCritic, moments: RowBatch, baseline: Tensor, batch: int) -> np.ndarray:
    """captum for agent after agent, each on a plain network of its own."""
    x, scores = moments.observations["agent"], []
    for agent in range(x.shape[1]):
        method, parts = IntegratedGradients(one_agent(policy, agent)), []
        for start in range(0, len(x), batch):
            rows = slice(start, start + batch)
            seen, target = x[rows, agent], moments.action[rows, agent]
            parts.append(method.attribute(seen, baseline[agent].expand_as(seen), target=target, n_steps=N_STEPS))
        scores.append(torch.cat(parts).detach())
    return torch.stack(scores, dim=1).numpy()


def one_agent(policy: ActorCritic, agent: int) -> nn.Module:
    network, layers = policy.actor.network, []
    for layer in [*network.hidden, network.head]:  # type: ignore[union-attr, misc]
        affine = getattr(layer, "linear", layer)
        plain = nn.Linear(affine.in_features, affine.out_features)
        weight, bias = affine.weight.detach(), affine.bias.detach()
        plain.load_state_dict({"weight": weight if affine.shared else weight[agent], "bias": bias if affine.shared else bias[agent]})  # fmt: skip  # noqa: E501
        layers += [plain, *([nn.Tanh()] if layer is not network.head else [])]
    return nn.Sequential(*layers)


def seconds(work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=256, help="rows that captum is given at once")
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = []
    for n_agents, units, shared in CASES:
        policy, env, moments = setting(n_agents, units, shared, arguments.rows)
        baseline = moments.observations["agent"].mean(0)
        ways: dict[str, Callable[[], np.ndarray]] = {
            "captum, all agents' policy": lambda p=policy, m=moments, b=baseline: joint_loop(p, m, b, arguments.batch),  # type: ignore[misc]
            "captum, a network an agent": lambda p=policy, m=moments, b=baseline: separate_loop(
                p, m, b, arguments.batch
            ),  # type: ignore[misc]
            "marlnb": lambda p=policy, e=env, m=moments, b=baseline: ours(p, e, m, b),  # type: ignore[misc]
        }
        speeds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(arguments.repetitions):
            values = {}
            for name, work in ways.items():
                spent, values[name] = seconds(work)
                speeds[name].append(arguments.rows * n_agents / spent)
            for name, scores in values.items():
                np.testing.assert_allclose(scores, values["marlnb"], atol=1e-5, err_msg=name)
        title = f"{n_agents} agents, 2 x {units}, {'shared' if shared else 'unshared'}"
        joint = f"{title}: captum, all agents' policy"
        for name, measured in speeds.items():
            against = {"marlnb": joint}.get(name)
            target = 3.0 if name == "marlnb" else None
            rows.append(Row(f"{title}: {name}", tuple(measured), "explanations/CPU s", against, target))
    report("attribution", f"Integrated gradients, {N_STEPS} steps, {arguments.rows} rows", rows)


if __name__ == "__main__":
    main()
