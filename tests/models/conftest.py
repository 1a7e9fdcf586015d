"""Environments' specs, and the policies of every case, for the tests of networks and sites."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from marlnb.config import ModelConfig
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

DISCRETE = ActionSpec("discrete", n=(5,))


def make_spec(action: ActionSpec = DISCRETE, *, n_agents: int = 3, state: tuple[int, ...] | None = None) -> EnvSpec:
    """Group `walker` of `n_agents` with 6 features, and group `other` of 2 agents with observations `(2, 4)`."""
    walkers = tuple(f"walker_{index}" for index in range(n_agents))
    return EnvSpec(
        "test/two_groups",
        (
            GroupSpec("walker", walkers, ObservationSpec((6,)), action),
            GroupSpec("other", ("other_0", "other_1"), ObservationSpec((2, 4)), DISCRETE),
        ),
        state_shape=state,
    )


def make_model(kind: str, share: bool) -> ModelConfig:
    if kind == "mlp":
        return MLPConfig(share_parameters=share, hidden=(16, 8))
    return GRUConfig(share_parameters=share, hidden=(16,), recurrent_size=8)


@pytest.fixture
def build_policy() -> Callable[..., ActorCritic]:
    def build(
        kind: str = "mlp",
        *,
        share: bool = True,
        centralised: bool = False,
        action: ActionSpec = DISCRETE,
        state: tuple[int, ...] | None = None,
        **options: object,
    ) -> ActorCritic:
        torch.manual_seed(7)
        env = make_spec(action, state=state)
        model = make_model(kind, share)
        return ActorCritic(env.group("walker"), env, model, model, centralised=centralised, **options)  # type: ignore[arg-type]

    return build


@pytest.fixture
def observations() -> dict[str, torch.Tensor]:
    """Of 4 copies, by group."""
    generator = torch.Generator().manual_seed(3)
    return {
        "walker": torch.randn(4, 3, 6, generator=generator),
        "other": torch.randn(4, 2, 2, 4, generator=generator),
    }
