"""Finds the network and the distribution of one group in a torchrl policy."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from tensordict.nn import (
    AddStateIndependentNormalScale,
    NormalParamExtractor,
    ProbabilisticTensorDictModule,
    TensorDictModule,
    TensorDictModuleBase,
    TensorDictSequential,
)
from torch import nn
from torchrl.modules import GRUModule, LSTMModule, QValueModule
from torchrl.modules.models.multiagent import MultiAgentNetBase

from marlnb.errors import ConfigError
from marlnb.models.adapters.critic import ExternalCritic, Reads
from marlnb.models.adapters.memory import memory_of
from marlnb.models.adapters.module_network import ModuleNetwork, check_feed_forward
from marlnb.models.adapters.naming import leaves
from marlnb.models.adapters.parameters import Direct, FreeGaussian, LocScale, tanh_delta
from marlnb.models.adapters.policy import ExternalPolicy
from marlnb.models.adapters.sequential import SequentialNetwork
from marlnb.models.adapters.soft_critic import ExternalSoftCritic
from marlnb.models.adapters.stacked import by_path, place_parameter, stacked
from marlnb.models.networks.by_agent import ByAgent
from marlnb.models.networks.network import Network
from marlnb.models.policies.distributions import ActionDistribution, Gaussian, action_distribution
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec

Key = tuple[str, ...]
EXTRACTORS = (NormalParamExtractor, AddStateIndependentNormalScale)
CATEGORICAL = ("Categorical", "MaskedCategorical", "OneHotCategorical", "MaskedOneHotCategorical")
VALID = (
    "Categorical, MaskedCategorical, OneHotCategorical, MaskedOneHotCategorical, TanhNormal, Independent normal "
    "(IndependentNormal), Delta and TanhDelta"
)


def policy_of(
    module: TensorDictModuleBase,
    group: GroupSpec,
    key: Key,
    *,
    critic: ExternalCritic | ExternalSoftCritic | None = None,
) -> ExternalPolicy:
    """The policy of one group in a torchrl policy, which may contain other groups.

    Args:
        module: the torchrl policy.
        group: the group.
        key: the group's key in the tensordict, such as `("agents",)`; it contains the observation and the action.
        critic: the group's critic.
    Raises:
        ConfigError: no module writes the group's action, a module reads more than the observation, a recurrent module
            is no GRUModule or LSTMModule, or the distribution is not supported.
    """
    steps = list(_steps(module))
    last = _writer(steps, (*key, "action"))
    if last is None:
        written = sorted({"/".join(_parts(out)) for step in steps for out in step.out_keys})
        raise ConfigError(f"no module of this policy writes {'/'.join((*key, 'action'))!r}; it writes {written}")
    earlier_steps = steps[: steps.index(last)]
    networks, required_keys = [], _wanted(last)
    if not isinstance(last, (ProbabilisticTensorDictModule, QValueModule)):
        networks, required_keys = [last], {_parts(name) for name in last.in_keys}
    observation = (*key, "observation")
    while required_keys != {observation}:
        step = next(
            (s for s in reversed(earlier_steps) if required_keys <= {_parts(name) for name in s.out_keys}), None
        )
        if step is None:
            raise ConfigError(
                f"the policy of {group.name!r} reads {sorted('/'.join(name) for name in required_keys)}; expected one "
                f"module that computes these from {'/'.join(observation)!r}"
            )
        networks.insert(0, step)
        earlier_steps = earlier_steps[: earlier_steps.index(step)]
        required_keys = _reads(step)
    keys = {id(_inner(step)): _states(step) for step in networks}
    pieces = [piece for step in networks for piece in _pieces(_inner(step))]
    extractor = pieces.pop() if pieces and isinstance(pieces[-1], EXTRACTORS) else None
    for piece in pieces:
        if not keys.get(id(piece)):
            check_feed_forward(piece, group.name)
    actor = network_of(pieces, group, keys)
    distribution, parameters = _distribution(last, group.action, extractor)
    greedy = isinstance(last, QValueModule)
    policy_options: dict[str, Any] = {"parameters": parameters, "greedy": greedy}
    if not isinstance(critic, ExternalSoftCritic):
        return ExternalPolicy(group, actor, distribution, critic=critic, **policy_options)
    if greedy or actor.recurrent_shape is not None:
        raise ConfigError(
            f"a critic of all actions of {group.name!r} needs a feed-forward policy with action probabilities"
        )
    return ExternalPolicy(group, actor, distribution, action_critic=critic, **policy_options)


def network_of(
    pieces: Sequence[nn.Module], group: GroupSpec, keys: Mapping[int, Sequence[Key]] | None = None
) -> Network:
    """The Network of modules that are called in order on `[batch, agent, ...]`.

    Args:
        pieces: the modules.
        group: the group.
        keys: tensordict keys of recurrent states, by the id of the recurrent module.
    Raises:
        ConfigError: there is no module, or a module is not supported.
    """
    shape: tuple[int, ...] = group.observation.shape
    parts: list[Network] = []
    for piece in pieces:
        parts.append(_network(piece, group, shape, (keys or {}).get(id(piece), ())))
        shape = (parts[-1].out_features,)
    if not parts:
        raise ConfigError(f"the policy of {group.name!r} has no network")
    return parts[0] if len(parts) == 1 else SequentialNetwork(parts)


def critic_of(
    module: TensorDictModuleBase, group: GroupSpec, env: EnvSpec, key: Key, *, alpha: float = 0.0
) -> ExternalCritic | ExternalSoftCritic:
    """The critic of one group: a module that reads the group's observation or the state, and writes a value.

    A module that writes one number per discrete action gives Q values, as in discrete SAC. `alpha` is then the weight
    of the policy's entropy in the value.
    """
    steps = [step for step in _steps(module) if not isinstance(step, ProbabilisticTensorDictModule)]
    critic_steps = [step for step in steps if _parts(step.out_keys[0])[: len(key)] == key]
    if len(critic_steps) != 1 or len(critic_steps[0].in_keys) != 1:
        raise ConfigError(
            f"a critic of {group.name!r} must be one module with one input; got {len(critic_steps)} modules with "
            f"inputs {[list(step.in_keys) for step in critic_steps]}"
        )
    reads = _parts(critic_steps[0].in_keys[0])
    if reads == ("state",):
        state = GroupSpec(group.name, group.agents[:1], group.observation, group.action)
        shape = env.state_shape or ()
        return _critic_of(group, ModuleNetwork(_inner(critic_steps[0]), state.n_agents, shape), env, "state", alpha)
    return _critic_of(group, network_of(_pieces(_inner(critic_steps[0])), group), env, "observation", alpha)


def _critic_of(
    group: GroupSpec, network: Network, env: EnvSpec, reads: Reads, alpha: float
) -> ExternalCritic | ExternalSoftCritic:
    if network.out_features == 1:
        return ExternalCritic(group, network, env, reads)
    if network.recurrent_shape is not None:
        raise ConfigError(f"a critic of all actions of {group.name!r} must be feed-forward; got a recurrent one")
    return ExternalSoftCritic(group, [network], env, reads, alpha=alpha)


def _network(piece: nn.Module, group: GroupSpec, shape: tuple[int, ...], keys: Sequence[Key]) -> Network:
    if keys:
        return memory_of(piece, group.n_agents, keys=keys)
    if not isinstance(piece, MultiAgentNetBase):
        dtype = getattr(torch, group.observation.dtype) if shape == group.observation.shape else torch.float32
        return ModuleNetwork(piece, group.n_agents, shape, dtype=dtype)
    if leaves(piece._empty_net) is not None:
        return stacked(piece, shape)
    if piece.share_params and not piece.centralized:
        return ModuleNetwork(piece, group.n_agents, shape)
    if piece.centralized:
        raise ConfigError(
            f"{type(piece).__name__} is centralised and contains a {type(piece._empty_net).__name__}; valid for a "
            "centralised network: a chain of layers"
        )
    views = [_view(piece, agent) for agent in range(group.n_agents)]
    return ByAgent(group.agents, [[k] for k in range(group.n_agents)], [ModuleNetwork(v, 1, shape) for v in views])


def _view(net: MultiAgentNetBase, agent: int) -> nn.Module:
    """One agent's network, with its slice of the stacked parameters."""
    view = copy.deepcopy(net._empty_net)
    for path, tensor in by_path(net.params).items():
        parent, _, name = path.rpartition(".")
        place_parameter(view.get_submodule(parent), name, tensor[agent].detach())
    return view


def _steps(module: Any) -> Iterator[Any]:
    if isinstance(module, TensorDictSequential):
        for step in module.module:
            yield from _steps(step)
    elif isinstance(module, TensorDictModuleBase):
        yield module
    else:
        raise ConfigError(
            f"a torchrl policy must be a TensorDictModule, TensorDictSequential or ProbabilisticActor; got "
            f"{type(module).__name__}. For plain modules: agents_from_module"
        )


def _writer(steps: Sequence[Any], key: Key) -> Any | None:
    """The step that chooses the action: the first that writes it; exploration modules come later."""
    return next((step for step in steps if key in {_parts(name) for name in step.out_keys}), None)


def _wanted(last: Any) -> set[Key]:
    if isinstance(last, ProbabilisticTensorDictModule):
        return {_parts(key) for name, key in zip(last.dist_keys, last.in_keys) if _parts(name)[-1] != "mask"}
    return {_parts(last.in_keys[0])}


def _parts(key: Any) -> Key:
    return (key,) if isinstance(key, str) else tuple(key)


def _states(step: Any) -> tuple[Key, ...]:
    """Keys of a step's recurrent state: hidden, then cell for an LSTM; empty for other modules."""
    return tuple(_parts(key) for key in step.in_keys[1:-1]) if isinstance(step, (GRUModule, LSTMModule)) else ()


def _reads(step: Any) -> set[Key]:
    """The keys that a step reads, without its recurrent state."""
    keys = {_parts(name) for name in step.in_keys}
    return {_parts(step.in_keys[0])} if isinstance(step, (GRUModule, LSTMModule)) else keys


def _inner(step: Any) -> nn.Module:
    if isinstance(step, (GRUModule, LSTMModule)):
        return step.gru if isinstance(step, GRUModule) else step.lstm  # type: ignore[no-any-return]
    if not isinstance(step, TensorDictModule) or not isinstance(step.module, nn.Module):
        raise ConfigError(f"expected a TensorDictModule with an nn.Module; got {type(step).__name__}")
    return step.module


def _pieces(module: nn.Module) -> list[nn.Module]:
    """The parts of a Sequential that contains multi-agent networks or an extractor; otherwise the module itself."""
    special = (MultiAgentNetBase, *EXTRACTORS)
    if type(module) is nn.Sequential and any(isinstance(child, special) for child in module):
        return [piece for child in module for piece in _pieces(child)]
    return [module]


def _distribution(
    last: Any, action: ActionSpec, extractor: nn.Module | None
) -> tuple[ActionDistribution, nn.Module | None]:
    if isinstance(last, QValueModule):
        _kind(action, "discrete", "Q values")
        return action_distribution(action), None
    if not isinstance(last, ProbabilisticTensorDictModule):
        _kind(action, "continuous", "a network's output as action")
        return Direct(action.low, action.high), None
    name = getattr(last.distribution_class, "__name__", str(last.distribution_class))
    options = dict(last.distribution_kwargs or {})
    keys = [name for name in (_parts(key)[-1] for key in last.dist_keys) if name != "mask"]
    if name in CATEGORICAL and keys == ["logits"]:
        _kind(action, "discrete", name)
        return action_distribution(action), None
    if name in ("TanhNormal", "IndependentNormal") and keys == ["loc", "scale"]:
        _kind(action, "continuous", name)
        squash = "tanh" if name == "TanhNormal" else "clip"
        if squash == "tanh":
            _check_bounds(options, action)
        upscale = float(options.get("upscale", 5.0)) if options.get("tanh_loc", False) else None
        distribution: Gaussian = FreeGaussian(action.low, action.high, squash)  # type: ignore[arg-type]
        return distribution, LocScale(extractor, units=None if squash == "tanh" else action, upscale=upscale)
    if name in ("Delta", "TanhDelta") and len(keys) == 1 and extractor is None:
        _kind(action, "continuous", name)
        if name == "Delta":
            return Direct(action.low, action.high), None
        _check_bounds(options, action)
        return tanh_delta(action)
    raise ConfigError(
        f"distribution {name} with parameters {keys} is not supported; valid: {VALID}, with logits or loc, scale"
    )


def _kind(action: ActionSpec, expected: str, name: str) -> None:
    if (action.kind == "continuous") != (expected == "continuous"):
        raise ConfigError(f"{name} needs {expected} actions; the environment has {action.kind} actions")


def _check_bounds(options: dict[str, Any], action: ActionSpec) -> None:
    for side, bound, default in (("low", action.low, -1.0), ("high", action.high, 1.0)):
        requested = torch.as_tensor(
            options.get(side, options.get({"low": "min", "high": "max"}[side], default))
        ).float()
        if not torch.allclose(
            requested.expand(*requested.shape[:-1], len(bound)) if requested.ndim else requested, torch.tensor(bound)
        ):
            raise ConfigError(
                f"the policy's actions are bounded by {side}={requested.tolist()}, the environment's by {bound}"
            )
