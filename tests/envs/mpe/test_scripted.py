"""The reference lines: the table holds, and mpe2 itself gives the same policies the same scores."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.mpe.config import MPEConfig
from marlnb.envs.mpe.scripted import REFERENCE_RETURNS, ScriptedPolicy, random_policy, references, returns
from marlnb.specs import EnvSpec

LINES = [(name, policy) for name, line in REFERENCE_RETURNS.items() for policy in line]


def _native(config: MPEConfig, policy: ScriptedPolicy, episodes: int) -> torch.Tensor:
    """Mean over groups of each episode's return, `[episode]`."""
    return torch.stack(list(returns(config.build(episodes), policy, seed=50_000).values())).mean(0)


def _mpe2(config: MPEConfig, spec: EnvSpec, policy: ScriptedPolicy, episodes: int) -> torch.Tensor:
    env = importlib.import_module(config.mpe2_module).parallel_env(**config.mpe2_options())
    totals = []
    for episode in range(episodes):
        seen, _ = env.reset(seed=episode)
        total = dict.fromkeys(spec.agents, 0.0)
        while env.agents:
            batch = {g.name: torch.tensor(np.array([[seen[a] for a in g.agents]])) for g in spec.groups}
            chosen = policy(batch, spec)
            actions = {a: chosen[g.name][0, i].numpy() for g in spec.groups for i, a in enumerate(g.agents)}
            if not config.continuous_actions:
                actions = {agent: int(action) for agent, action in actions.items()}
            seen, rewards, _, _, _ = env.step(actions)
            total = {agent: total[agent] + rewards[agent] for agent in total}
        totals.append(np.mean([np.mean([total[a] for a in g.agents]) for g in spec.groups]))
    return torch.tensor(totals)


@pytest.mark.parametrize(("name", "policy_name"), LINES)
def test_the_table_holds(name: str, policy_name: str) -> None:
    config, policies = references()[name]
    returns = _native(config, policies[policy_name], 1500)
    assert abs(returns.mean() - REFERENCE_RETURNS[name][policy_name]) < 4 * returns.std() / 1500**0.5 + 0.01


@pytest.mark.parametrize(
    ("name", "policy_name"), [line for line in LINES if line[0] in ("simple_speaker_listener", "simple_spread")]
)
def test_mpe2_gives_the_same_score(name: str, policy_name: str) -> None:
    """Within 4 standard errors of 100 episodes there."""
    config, policies = references()[name]
    there = _mpe2(config, config.build(1).spec, policies[policy_name], 100)
    assert abs(there.mean() - REFERENCE_RETURNS[name][policy_name]) < 4 * there.std() / 100**0.5


@pytest.mark.parametrize("name", ["simple_tag", "simple_world_comm", "simple_crypto", "simple_push"])
def test_random_agents_score_the_same_in_both(name: str) -> None:
    config = ENVIRONMENTS.get(f"mpe/{name}")(max_cycles=10)
    policy = random_policy(torch.Generator().manual_seed(1))
    here, there = _native(config, policy, 3000), _mpe2(config, config.build(1).spec, policy, 75)
    assert abs(here.mean() - there.mean()) < 4 * (here.var() / 3000 + there.var() / 75) ** 0.5
