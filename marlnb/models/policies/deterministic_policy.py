"""DeterministicPolicy: the policy of IDDPG, MADDPG and MATD3. An actor that outputs one action, and its critics."""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.config import ModelConfig
from marlnb.models.policies.actor import Actor
from marlnb.models.policies.distributions import Deterministic
from marlnb.models.policies.policy import ActContext, ActorOutput
from marlnb.models.policies.q_actor_critic import QActorCritic
from marlnb.models.policies.random_numbers import Generators, fill
from marlnb.specs import EnvSpec, GroupSpec


class DeterministicPolicy(QActorCritic):
    """An actor that outputs one action, and one or two critics of actions.

    Continuous actions: `a = tanh(x)` scaled to the bounds; exploration adds noise (bounds scaled to -1..1) and clips,
    `a = clip(tanh(x) + u, -1, 1)`. u is `noise * e` with e ~ N(0, 1), or an Ornstein-Uhlenbeck process, 0 when an
    episode begins:

        u <- u - theta dt u + noise sqrt(dt) e

    Discrete actions: the largest logit; exploration
    adds Gumbel noise, `argmax(logits + g)`, which samples from the softmax. Log-probabilities are zero for continuous
    actions, which have no density, and the softmax's for discrete ones.

    Attributes:
        noise: `[]`, standard deviation of the exploration noise; the learner sets it.
        process: (theta, dt) of the Ornstein-Uhlenbeck process; None: independent noise.
        noise_state: u of an Ornstein-Uhlenbeck process; None before the first step.
    Source: Uhlenbeck and Ornstein 1930; for exploration: Lillicrap et al. 2016, section 3 (arXiv:1509.02971).
    """

    noise: Tensor
    process: tuple[float, float] | None = None

    def __init__(
        self, group: GroupSpec, env: EnvSpec, actor: ModelConfig, critic: ModelConfig, *, centralised: bool, twins: bool
    ) -> None:
        spec = group.action
        self.continuous = spec.kind == "continuous"
        chooser = Actor(group, actor, distribution=Deterministic(spec.low, spec.high) if self.continuous else None)
        super().__init__(group, env, chooser, critic, centralised=centralised, twins=twins, all_actions=False)
        self.register_buffer("noise", torch.zeros(()))

    @torch.no_grad()
    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        return self.choose_from(self.actor(observation), context)

    def choose_from(self, output: Tensor, context: ActContext) -> ActorOutput:
        """As `choose`, from the actor's output `[env, agent, parameter]`."""
        distribution = self.actor.distribution
        parameters = distribution.mask(output, context.action_mask)
        if not context.explore:
            mode = distribution.mode(parameters)
            return ActorOutput(mode.action, mode.log_prob, parameters)
        if self.continuous:
            if self.uniform:
                code = torch.empty_like(parameters).uniform_(-1, 1, generator=context.generator)
            else:
                code = (parameters.tanh() + self.action_noise(parameters, context.generator)).clamp_(-1, 1)
            return self.output_of(code, parameters)
        uniform = distribution.mask(torch.zeros_like(parameters), context.action_mask)
        sample = distribution.sample(uniform if self.uniform else parameters, context.generator)
        return ActorOutput(sample.action, sample.log_prob, parameters)

    def greedy_code(self, parameters: Tensor) -> Tensor:
        if self.continuous:
            return parameters.tanh()
        return self.critic.encode_action(self.group.name, self.actor.distribution.mode(parameters).action)

    def code(self, parameters: Tensor, temperature: float, generator: Generators = None) -> Tensor:
        """The action as critics read it, `[..., agent, code]`, with a gradient for the actor.

        Continuous: without noise. Discrete: a straight-through Gumbel-softmax sample.
        """
        if self.continuous:
            return parameters.tanh()
        return straight_through(parameters, self.group.action.n, temperature, generator)

    def action_of(self, code: Tensor) -> Tensor:
        """The continuous actions that a code encodes, in the environment's units."""
        return self.critic.decode_action(self.group.name, code)

    def output_of(self, code: Tensor, parameters: Tensor) -> ActorOutput:
        """Of continuous actions `[env, agent, code]`."""
        return ActorOutput(self.action_of(code), parameters.new_zeros(parameters.shape[:-1]), parameters)

    def action_noise(self, parameters: Tensor, generator: torch.Generator | None) -> Tensor:
        """u of the next step, in the shape of the parameters `[env, agent, component]`."""
        noise = torch.randn(parameters.shape, device=parameters.device, generator=generator)
        if self.process is None:
            return noise.mul_(self.noise)
        theta, dt = self.process
        before = self.noise_state
        if before is None or before.shape != parameters.shape:  # of other environments, as in an evaluation
            before = torch.zeros_like(parameters)
        self.noise_state = before * (1 - theta * dt) + noise * (self.noise * dt**0.5)
        return self.noise_state

    def begin_episodes(self, done: Tensor) -> None:
        if self.noise_state is not None and len(self.noise_state) == len(done):
            self.noise_state = self.noise_state.masked_fill(done.to(self.noise_state.device)[:, None, None], 0.0)


def straight_through(logits: Tensor, n: tuple[int, ...], temperature: float, generator: Generators = None) -> Tensor:
    """One-hot samples from the softmax of logits `[..., choice]`, in components of n[k] choices each.

    Straight-through Gumbel-softmax, with g = -log(e), e ~ Exp(1):

        forward   y = one_hot(argmax((logits + g) / temperature))
        backward  dy = d softmax((logits + g) / temperature)

    Source: Jang et al. 2017, section 2.2 (arXiv:1611.01144).
    """
    exponential = fill(torch.empty_like(logits), Tensor.exponential_, generator)
    noisy = (logits - exponential.log_()) / temperature
    noisy = noisy.clamp_min(torch.finfo(noisy.dtype).min)  # of masked choices: the softmax of -inf alone is no number
    parts = []
    for scores in noisy.split(n, dim=-1):
        soft = scores.softmax(-1)
        hard = torch.zeros_like(soft).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)
        parts.append(hard + (soft - soft.detach()))  # the value of `hard`, the gradient of `soft`
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
