"""The samples that an on-policy algorithm learns from: normalised advantages, the networks' inputs, and sequences."""

from __future__ import annotations

from torch import Tensor

from marlnb.algorithms.configs.on_policy import OnPolicyConfig
from marlnb.algorithms.gae import critic_inputs
from marlnb.algorithms.losses import masked_moments
from marlnb.algorithms.rollout import Rollout
from marlnb.models.networks.inputs import features
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.models.policies.value_norm import ValueNorm


def normalised(
    config: OnPolicyConfig, value_norm: ValueNorm, value: Tensor, returns: Tensor, advantage: Tensor, acting: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """What to report about a rollout, and its advantages, normalised over the agents that acted."""
    acted_returns, acted_advantage = returns[acting], advantage[acting]
    unexplained, variance = acted_advantage.var(correction=0), acted_returns.var(correction=0)
    report = {
        "explained_variance": 1 - unexplained / variance.clamp_min(1e-8),
        "value_mean": value[acting].mean(),
    }
    if config.normalise_values:
        # Now: the targets are on the scale that the critic's values have from now on.
        value_norm.update(acted_returns)
    if config.normalise_advantages and acted_advantage.numel() > 1:
        advantage = (advantage - acted_advantage.mean()) / (acted_advantage.std() + 1e-8)
    return report, advantage


def normalised_by_mask(
    config: OnPolicyConfig, value_norm: ValueNorm, value: Tensor, returns: Tensor, advantage: Tensor, acting: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """As `normalised`, up to rounding."""
    mean, unexplained, n = masked_moments(advantage, acting)
    variance = masked_moments(returns, acting)[1]
    report = {
        "explained_variance": 1 - unexplained / variance.clamp_min(1e-8),
        "value_mean": masked_moments(value, acting)[0],
    }
    if config.normalise_values:
        value_norm.update(returns, acting)
    if config.normalise_advantages:
        std = (unexplained * n / (n - 1).clamp_min(1)).sqrt()
        advantage = (advantage - mean) / (std + 1e-8)
    return report, advantage


def network_inputs(policy: ActorCritic, rollout: Rollout) -> dict[str, Tensor]:
    """What the networks read, `[env, time, ...]`."""
    name = policy.group.name
    inputs = {
        "observation": features(rollout[name, "observation"], policy.actor.observation_axes),
        "stored": rollout[name, policy.actor.distribution.stored_as],
    }
    if policy.group.has_action_mask:
        inputs["action_mask"] = rollout[name, "action_mask"]
    if policy.critic.centralised:
        inputs["joint"] = critic_inputs(policy, rollout)
    return inputs


def to_sequences(
    policy: ActorCritic, samples: dict[str, Tensor], rollout: Rollout, critic_state_in: Tensor | None, length: int
) -> dict[str, Tensor]:
    """`[env, time, ...]` to samples `[sample, time, ...]` of `length` steps, and the states before each of them.

    The states are those of the rollout, computed with the weights of that time. Within a sample the networks in
    training compute their own, and gradients flow through `length` steps.
    """
    samples["is_init"] = rollout["is_init"].squeeze(-1)
    sequences = {key: value.unflatten(1, (-1, length)).flatten(0, 1) for key, value in samples.items()}
    if policy.recurrent_shape is not None:
        sequences["actor_state"] = rollout[policy.group.name, "recurrent"][:, ::length].flatten(0, 1)
    if critic_state_in is not None:
        sequences["critic_state"] = critic_state_in[:, ::length].flatten(0, 1)
    return sequences
