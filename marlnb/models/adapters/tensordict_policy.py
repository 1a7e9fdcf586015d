"""torchrl's policies of one group: the network and the distribution found between the observation and the action."""

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
from marlnb.models.adapters.module_network import ModuleNetwork, check_forgets
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
    """The policy of one group out of a torchrl policy, which may hold other groups' as well.

    Args:
        key: the group's key in the tensordict, such as `("agents",)`; it holds the observation and the action.
    Raises:
        ConfigError: it remembers in another way than by GRUModule or LSTMModule, nothing writes the group's action,
            something else than the observation is read on the way, or the distribution is none that marlnb has.
    """
    steps = list(_steps(module))
    last = _writer(steps, (*key, "action"))
    if last is None:
        written = sorted({"/".join(_parts(out)) for step in steps for out in step.out_keys})
        raise ConfigError(f"nothing in this policy writes {'/'.join((*key, 'action'))!r}; it writes {written}")
    before = steps[: steps.index(last)]
    networks, wanted = [], _wanted(last)
    if not isinstance(last, (ProbabilisticTensorDictModule, QValueModule)):
        networks, wanted = [last], {_parts(name) for name in last.in_keys}
    observation = (*key, "observation")
    while wanted != {observation}:
        step = next((s for s in reversed(before) if wanted <= {_parts(name) for name in s.out_keys}), None)
        if step is None:
            raise ConfigError(
                f"the policy of {group.name!r} reads {sorted('/'.join(name) for name in wanted)}, which no one module "
                f"makes of {'/'.join(observation)!r}"
            )
        networks.insert(0, step)
        before = before[: before.index(step)]
        wanted = _reads(step)
    keys = {id(_inner(step)): _states(step) for step in networks}
    pieces = [piece for step in networks for piece in _pieces(_inner(step))]
    extractor = pieces.pop() if pieces and isinstance(pieces[-1], EXTRACTORS) else None
    for piece in pieces:
        if not keys.get(id(piece)):
            check_forgets(piece, group.name)
    actor = network_of(pieces, group, keys)
    distribution, parameters = _distribution(last, group.action, extractor)
    greedy = isinstance(last, QValueModule)
    made: dict[str, Any] = {"parameters": parameters, "greedy": greedy}
    if not isinstance(critic, ExternalSoftCritic):
        return ExternalPolicy(group, actor, distribution, critic=critic, **made)
    if greedy or actor.recurrent_shape is not None:
        raise ConfigError(
            f"a critic of {group.name!r} that judges every action needs the probabilities of a policy without memory"
        )
    return ExternalPolicy(group, actor, distribution, action_critic=critic, **made)


def network_of(
    pieces: Sequence[nn.Module], group: GroupSpec, keys: Mapping[int, Sequence[Key]] | None = None
) -> Network:
    """One Network of modules that are called one after another on `[batch, agent, ...]`.

    Args:
        keys: by a recurrent module's id, where a tensordict holds its states.
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
    """The critic of one group: a module that reads the group's observation or the state and writes a value.

    One that writes a number for each discrete action judges them, as discrete SAC's do; `alpha` is then the weight of
    the policy's entropy in the value.
    """
    steps = [step for step in _steps(module) if not isinstance(step, ProbabilisticTensorDictModule)]
    own = [step for step in steps if _parts(step.out_keys[0])[: len(key)] == key]
    if len(own) != 1 or len(own[0].in_keys) != 1:
        raise ConfigError(f"a critic of {group.name!r} must be one module with one input; got {len(own)} of them")
    reads = _parts(own[0].in_keys[0])
    if reads == ("state",):
        state = GroupSpec(group.name, group.agents[:1], group.observation, group.action)
        shape = env.state_shape or ()
        return _critic_of(group, ModuleNetwork(_inner(own[0]), state.n_agents, shape), env, "state", alpha)
    return _critic_of(group, network_of(_pieces(_inner(own[0])), group), env, "observation", alpha)


def _critic_of(
    group: GroupSpec, network: Network, env: EnvSpec, reads: Reads, alpha: float
) -> ExternalCritic | ExternalSoftCritic:
    if network.out_features == 1:
        return ExternalCritic(group, network, env, reads)
    if network.recurrent_shape is not None:
        raise ConfigError(f"a critic of {group.name!r} that judges every action must not remember")
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
            f"{type(piece).__name__} is centralised and made of {type(piece._empty_net).__name__}; only chains of "
            "layers can be centralised"
        )
    views = [_view(piece, agent) for agent in range(group.n_agents)]
    return ByAgent(group.agents, [[k] for k in range(group.n_agents)], [ModuleNetwork(v, 1, shape) for v in views])


def _view(net: MultiAgentNetBase, agent: int) -> nn.Module:
    """One agent's network by itself, with parameters of its own place in the stacked ones."""
    view = copy.deepcopy(net._empty_net)
    for path, tensor in by_path(net.params).items():
        below, _, name = path.rpartition(".")
        place_parameter(view.get_submodule(below), name, tensor[agent].detach())
    return view


def _steps(module: Any) -> Iterator[Any]:
    if isinstance(module, TensorDictSequential):
        for step in module.module:
            yield from _steps(step)
    elif isinstance(module, TensorDictModuleBase):
        yield module
    else:
        raise ConfigError(
            f"a torchrl policy is a TensorDictModule, TensorDictSequential or ProbabilisticActor; found "
            f"{type(module).__name__}. For plain modules: agents_from_module"
        )


def _writer(steps: Sequence[Any], key: Key) -> Any | None:
    """The step that chooses the action: the first that writes it (what explores comes after)."""
    return next((step for step in steps if key in {_parts(name) for name in step.out_keys}), None)


def _wanted(last: Any) -> set[Key]:
    if isinstance(last, ProbabilisticTensorDictModule):
        return {_parts(key) for name, key in zip(last.dist_keys, last.in_keys) if _parts(name)[-1] != "mask"}
    return {_parts(last.in_keys[0])}


def _parts(key: Any) -> Key:
    return (key,) if isinstance(key, str) else tuple(key)


def _states(step: Any) -> tuple[Key, ...]:
    """The entries that a step reads beside its input because it remembers: hidden, and cell where there is one."""
    return tuple(_parts(key) for key in step.in_keys[1:-1]) if isinstance(step, (GRUModule, LSTMModule)) else ()


def _reads(step: Any) -> set[Key]:
    """What a step reads of the present moment."""
    keys = {_parts(name) for name in step.in_keys}
    return {_parts(step.in_keys[0])} if isinstance(step, (GRUModule, LSTMModule)) else keys


def _inner(step: Any) -> nn.Module:
    if isinstance(step, (GRUModule, LSTMModule)):
        return step.gru if isinstance(step, GRUModule) else step.lstm  # type: ignore[no-any-return]
    if not isinstance(step, TensorDictModule) or not isinstance(step.module, nn.Module):
        raise ConfigError(f"no module to look into in {type(step).__name__} (a function, or a class of its own)")
    return step.module


def _pieces(module: nn.Module) -> list[nn.Module]:
    """A Sequential that holds multi-agent networks or an extractor is taken apart; anything else is one piece."""
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
        _kind(action, "continuous", "an action that a network names")
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
        f"distribution {name} of {keys} is none that can be read; valid: {VALID}, of logits or loc, scale"
    )


def _kind(action: ActionSpec, wanted: str, what: str) -> None:
    if (action.kind == "continuous") != (wanted == "continuous"):
        raise ConfigError(f"{what} is for {wanted} actions; the environment's are {action.kind}")


def _check_bounds(options: dict[str, Any], action: ActionSpec) -> None:
    for side, bound, usual in (("low", action.low, -1.0), ("high", action.high, 1.0)):
        asked = torch.as_tensor(options.get(side, options.get({"low": "min", "high": "max"}[side], usual))).float()
        if not torch.allclose(
            asked.expand(*asked.shape[:-1], len(bound)) if asked.ndim else asked, torch.tensor(bound)
        ):
            raise ConfigError(
                f"the policy's actions are bounded by {side}={asked.tolist()}, the environment's by {bound}"
            )
