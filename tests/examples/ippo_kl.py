"""An algorithm of one's own: IPPO with a penalty on the KL divergence from the policy that collected the rollout.

Source: Schulman et al. 2017, section 4 (arXiv:1707.06347), with a fixed coefficient.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.losses import masked_mean
from marlnb.algorithms.on_policy import Minibatch
from marlnb.algorithms.ppo import MinibatchOutput, PPOLearner, approximate_kl
from marlnb.config import ALGORITHMS, LEARNERS, option


@ALGORITHMS.register("examples/ippo_kl")
@dataclass(frozen=True)
class IPPOKLConfig(IPPOConfig):
    """Independent PPO with a KL penalty: L = L_ippo + kl_coef KL(pi_old || pi)."""

    kl_coef: float = option(1.0, help="weight of the KL penalty", ge=0)


@LEARNERS.register(IPPOKLConfig)
class IPPOKLLearner(PPOLearner):
    """Learns with these options."""

    config: IPPOKLConfig

    def policy_gradient_loss(self, output: MinibatchOutput, minibatch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = super().policy_gradient_loss(output, minibatch)
        log_ratio = output.log_prob - minibatch["log_prob"]
        kl = masked_mean(approximate_kl(log_ratio), minibatch.get("weight"))
        return loss + self.config.kl_coef * kl, metrics
