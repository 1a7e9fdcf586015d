"""Instance: what an analysis receives, an instance without its key; and the register of the scored analyses."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from marlnb.analysis.data.rows import RowBatch
from marlnb.analysis.stats.linear_models import Kind
from marlnb.errors import ConfigError, UnknownNameError, unknown
from marlnb.groundtruth.answer_key import PublicTask, as_tuples
from marlnb.groundtruth.permuted_checkpoint import permuted_policy
from marlnb.groundtruth.planted_mixer import mixed_policy, mixing_weights
from marlnb.groundtruth.planting import Planted
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim, EffectClaim, SitesClaim, SubspaceClaim, UnitsClaim
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.faithfulness import every_row, hidden_sites
from marlnb.groundtruth.scoring.finding import Finding
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.directions import Direction, Steer
from marlnb.models.hooks.edit import Edit
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.q_policy import QPolicy
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.agents import Agents

MIN_LOGIT_SHARE = 0.01
"""Share of the driven logits' standard deviation below which no effect is worth naming."""
RANK_SHARE = 0.1
"""Minimal singular value of a dimension of the slopes' span, as a share of the largest."""


@dataclass(frozen=True)
class Instance:
    """An instance, a recording of it and the task. No key.

    Attributes:
        task: what the analysis may know.
        agents: the agents with the planted circuit.
        recording: recorded episodes.
        later: the agents as a later checkpoint has them, to ask what stayed the same (`permuted_checkpoint`).
    """

    task: PublicTask
    agents: Agents
    recording: Recording
    later: Agents

    @staticmethod
    def of(planted: Planted, recording: Recording) -> Instance:
        policies = {group: permuted_policy(policy, planted.key) for group, policy in planted.policies.items()}
        agents = planted.agents
        later = Agents(policies, agents.env, agents.path, source=f"{agents.source}, later", networks=agents.networks)
        return Instance(planted.task, agents, recording, later)

    @property
    def policies(self) -> Mapping[str, Policy]:
        return self.agents.by_group

    @property
    def outputs(self) -> dict[str, list[int]]:
        """By group, the logits that the concept may drive."""
        return {group: list(outputs) for group, outputs in self.task.outputs}

    @property
    def kind_of_decoding(self) -> Kind:
        """The kind of decoder that the concept needs."""
        return "classification" if self.task.kind == "classes" else "regression"

    def members(self, group: str) -> tuple[str, ...]:
        """The agents of a group."""
        return self.agents.spec.group(group).agents

    def hidden_sites(self, group: str) -> list[str]:
        """The actor's sites in forward order, without the head."""
        return hidden_sites(self.policies[group])

    def pairs(self) -> list[tuple[str, str]]:
        """(agent, hidden site) of every agent, by group and site."""
        groups = self.task.groups
        return [(agent, site) for g in groups for site in self.hidden_sites(g) for agent in self.members(g)]

    def last_pairs(self) -> list[tuple[str, str]]:
        """(agent, last hidden site) of every agent."""
        return [(agent, self.hidden_sites(g)[-1]) for g in self.task.groups for agent in self.members(g)]

    def width(self, site: str) -> int:
        """Number of units of a site."""
        return {s.name: s.n_units for policy in self.policies.values() for s in policy.sites()}[site]

    def batch(self, group: str) -> RowBatch:
        """Every recorded row, with the recurrent state before it."""
        return every_row(self.recording, group)

    def logits(self, group: str, batch: RowBatch, edits: list[Edit]) -> np.ndarray:
        """The driven logits `[row, agent, output]` at recorded rows, with marlnb's edits applied."""
        policy = self.policies[group]
        with edited(policy, edits), torch.no_grad():
            logits, _ = policy.logits(batch.observations[group], recurrent=batch.recurrent)
        return logits.numpy().astype(np.float64)[..., self.outputs[group]]

    def slopes(self, group: str, site: str) -> np.ndarray:
        """`[agent, output, unit]`: mean change of the driven logits for one more of each unit, by steering."""
        batch, width = self.batch(group), self.width(site)
        baseline = self.logits(group, batch, [])
        changes = []
        for unit in range(width):
            along = Direction(site, self.members(group)[0], tuple(np.eye(width)[unit]), mean=0.0, scale=1.0)
            changes.append((self.logits(group, batch, [Steer(site, along)]) - baseline).mean(0))
        return np.stack(changes, axis=-1)

    def units_read(self, group: str, site: str, slopes: np.ndarray) -> dict[str, tuple[int, ...]]:
        """By agent, the units of a site worth naming, by the effect of one standard deviation of each.

        Args:
            group: group name.
            site: site name.
            slopes: the result of `slopes`.
        """
        std = self.recording[site].to_numpy().std(0)  # [agent, unit]
        return self.large_units(group, np.abs(slopes).max(1) * std)

    def large_units(self, group: str, sizes: np.ndarray) -> dict[str, tuple[int, ...]]:
        """By agent, the units of a site whose effect is large enough to be named; none if no unit has an effect.

        Args:
            group: group name.
            sizes: `[agent, unit]`, in logits.
        """
        if not sizes.max() > 0:
            return {}
        smallest = max(self.min_effect(group), self.task.min_effect_share * float(sizes.max()))
        return {a: tuple(np.flatnonzero(row >= smallest).tolist()) for a, row in zip(self.members(group), sizes)}

    def min_effect(self, group: str) -> float:
        """MIN_LOGIT_SHARE of the largest standard deviation, over rows, of any driven logit of a group."""
        logits = self.recording.steps(group, "logits").to_numpy()[..., self.outputs[group]]
        return MIN_LOGIT_SHARE * float(logits.std(0).max())

    def nonsense_label(self) -> np.ndarray:
        """A label `[row]` that no agent can know: 0 or 1, drawn for each episode.

        Every instance draws its own, so a chance correlation in one draw does not count four times.
        """
        episode, task = self.recording.rows["episode"].to_numpy(), self.task
        rng = np.random.default_rng([task.seed, int(task.shared), *f"{task.name} {task.network}".encode()])
        return rng.integers(0, 2, int(episode.max()) + 1)[episode]

    def mixed_policy(self, group: str) -> QPolicy:
        """The group as a team under a mixer with weights to be found; its logits are taken as Q values."""
        task = self.task
        return mixed_policy(self.agents, group, mixing_weights(self.members(group), task.name, task.seed))

    def finding(
        self,
        analysis: str,
        attempts: tuple[str, ...],
        claims: Sequence[Claim],
        *,
        abstains: tuple[str, ...] = (),
        doubts: tuple[str, ...] = (),
    ) -> Finding:
        """A finding about this instance; the arguments are `Finding`'s."""
        task = self.task
        return Finding(
            analysis, task.name, task.network, task.shared, task.seed, attempts, tuple(claims), abstains, doubts
        )


Analyse = Callable[[Instance], Finding]
ANALYSES: dict[str, Analyse] = {}


def analysis(name: str) -> Callable[[Analyse], Analyse]:
    """A decorator that registers a function from an instance to a finding.

    Raises:
        ConfigError: another module's analysis has that name.
    """

    def register(analyse: Analyse) -> Analyse:
        registered = ANALYSES.get(name)
        if registered is not None and registered.__module__ != analyse.__module__:
            raise ConfigError(f"analysis {name!r} is already registered, by {registered.__module__}")
        ANALYSES[name] = analyse
        return analyse

    return register


def analyses(names: list[str] | None = None) -> dict[str, Analyse]:
    """The analyses of these names; None: all.

    Raises:
        UnknownNameError: no analysis has that name.
    """
    package = importlib.import_module("marlnb.groundtruth.analyses")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    for name in names or ():
        if name not in ANALYSES:
            raise UnknownNameError(unknown("analysis", name, ANALYSES))
    return {name: ANALYSES[name] for name in sorted(ANALYSES) if names is None or name in names}


def claims_from_units(units: Mapping[tuple[str, str], tuple[int, ...]]) -> list[Claim]:
    """Claims of units, and of the sites and agents that have some."""
    named = {pair: indices for pair, indices in units.items() if indices}
    agents = tuple(dict.fromkeys(agent for agent, _ in named))
    claims = [UnitsClaim(agent=a, site=s, units=indices) for (a, s), indices in named.items()]
    return [*claims, SitesClaim(sites=tuple(named)), AgentsClaim(agents=agents)]


def direction_claims(
    agent: str, site: str, units: tuple[int, ...], slopes: np.ndarray, outputs: Sequence[int]
) -> list[Claim]:
    """The subspace that an agent's slopes `[output, unit]` span, and the effects along the units and the subspace.

    Slopes of other units than `units` count as zero.
    """
    restricted = np.zeros_like(slopes)
    restricted[:, list(units)] = slopes[:, list(units)]
    _, sizes, directions = np.linalg.svd(restricted, full_matrices=False)
    basis = directions[sizes > RANK_SHARE * sizes[0]]
    effects = [
        EffectClaim(agent=agent, site=site, direction=tuple(step.tolist()), output=output, value=float(row @ step))
        for row, output in zip(restricted, outputs)
        for step in (*np.eye(slopes.shape[1])[list(units)], *basis)
    ]
    return [SubspaceClaim(agent=agent, site=site, basis=as_tuples(basis.tolist())), *effects]
