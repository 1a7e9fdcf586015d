"""Whose return ends a run is checked before it starts, as far as it is known without building the environment."""

from __future__ import annotations

import pytest
import torch

from marlnb.cli import main
from marlnb.config import ENVIRONMENTS
from marlnb.envs.by_hand import vector_env
from marlnb.envs.mpe.config import MPEConfig
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.training.collect.episodes import play
from marlnb.training.shared_return import earn_differently

SCENARIOS = [name for name, kind in ENVIRONMENTS.items() if name.startswith("mpe/") and issubclass(kind, MPEConfig)]
TAG = ("env=mpe/simple_tag", "algorithm=ippo", "target_return=5")


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_known_of_a_scenarios_groups_is_true(name: str) -> None:
    facts = ENVIRONMENTS.get(name)().facts
    with vector_env(name, 16) as env:
        assert facts.groups == env.spec.group_names
        torch.manual_seed(0)
        policies = {group.name: RandomPolicy(group) for group in env.spec.groups}
        table = play(env, policies, episodes=64, seed=0, explore=True)
    returns = {group: float(table.group_return(group).mean()) for group in facts.groups}
    assert facts.rewards_groups_differently is earn_differently(returns)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (TAG, r"target_return=5 .* are rewarded differently; .*target_group=adversary or target_group=agent"),
        ((*TAG, "target_group=prey"), r"no group 'prey' of mpe/simple_tag.*adversary"),
        ((*TAG, "groups.all=[adversary_0,adversary_1,adversary_2,agent_0]", "target_group=agent"), "'agent'.*all"),
        (
            ("env=pettingzoo/simple_tag", "env.groups.prey=[agent_0]", "algorithm=ippo", "target_group=agent"),
            r"no group 'agent' of pettingzoo/simple_tag.*prey",
        ),
        (
            ("env=mpe/simple_spread", "algorithm=mappo", "algorithms.adversary=iql", "frames=100"),
            r"^no group 'adversary' of mpe/simple_spread\. Valid: agent$",
        ),
    ],
)
def test_a_group_that_is_missing_or_unknown(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.compose(*overrides).check_without_env()


def test_groups_that_share_a_reward_or_are_unknown_need_none() -> None:
    for env in ("mpe/simple_speaker_listener", "pettingzoo/simple_tag"):
        Experiment.compose(f"env={env}", "algorithm=ippo", "target_return=5").check_without_env()
    Experiment.compose(*TAG, "target_group=agent").check_without_env()
    alone = Experiment.compose(*TAG[:2], "target_group=agent")
    assert alone.unused_overrides(["target_group=agent"]) == [
        "target_group=agent has no effect: there is no target_return"
    ]


def test_the_commands_dry_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *TAG, "--dry-run"]) == 2
    assert "target_group=adversary or target_group=agent" in capsys.readouterr().err
