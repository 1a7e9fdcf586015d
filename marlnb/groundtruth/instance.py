"""Case: what an analysis is given, an instance without its key; and the register of the analyses that are scored."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from marlnb.analysis.data.rows import Moments, RowSource
from marlnb.errors import ConfigError, UnknownNameError, unknown
from marlnb.groundtruth.answer_key import Question
from marlnb.groundtruth.permuted_checkpoint import reworked
from marlnb.groundtruth.planted_mixer import mixed_policy, mixing_weights
from marlnb.groundtruth.planting import Planted
from marlnb.groundtruth.scoring.claims import Claim, Finding
from marlnb.models.hooks.directions import Direction
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.edits import edited
from marlnb.models.hooks.edits_directions import Steer
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.q_policy import QPolicy
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.agents import Agents


@dataclass(frozen=True)
class Case:
    """An instance, a recording of it and the question. No key.

    Attributes:
        later: the agents as a later checkpoint has them, for who asks what stayed the same (`reworking`).
    """

    question: Question
    agents: Agents
    recording: Recording
    later: Agents

    @staticmethod
    def of(planted: Planted, recording: Recording) -> Case:
        policies = {group: reworked(policy, planted.key) for group, policy in planted.policies.items()}
        agents = planted.agents
        later = Agents(policies, agents.env, agents.path, source=f"{agents.source}, later", networks=agents.networks)
        return Case(planted.question, agents, recording, later)

    @property
    def policies(self) -> Mapping[str, Policy]:
        return self.agents.by_group

    @property
    def outputs(self) -> dict[str, list[int]]:
        """By group, the logits to look at."""
        return {group: list(outputs) for group, outputs in self.question.outputs}

    def members(self, group: str) -> tuple[str, ...]:
        return self.agents.spec.group(group).agents

    def hidden_sites(self, group: str) -> list[str]:
        """The actor's, in the order in which they fire, without the head."""
        found = self.policies[group].sites()
        return [site.name for site in found if "/actor/" in site.name and site.kind != "head"]

    def width(self, site: str) -> int:
        sites = {s.name: s.n_units for policy in self.policies.values() for s in policy.sites()}
        return sites[site]

    def moments(self, group: str) -> Moments:
        """Every recorded row, with the state that entered it."""
        source = RowSource(self.recording, group)
        rows = source.rows(None)
        return next(iter(source.batches(rows, len(rows))))

    def logits(self, group: str, moments: Moments, edits: list[Edit]) -> np.ndarray:
        """The driven outputs `[row, agent, output]` at recorded moments, with marlnb's edits in force."""
        policy = self.policies[group]
        with edited(policy, edits), torch.no_grad():
            found, _ = policy.logits(moments.observations[group], recurrent=moments.recurrent)
        return found.numpy().astype(np.float64)[..., self.outputs[group]]

    def slopes(self, group: str, site: str) -> np.ndarray:
        """`[agent, output, unit]`: mean change of the driven logits for one more of each unit, by steering."""
        moments, width = self.moments(group), self.width(site)
        whole = self.logits(group, moments, [])
        found = []
        for unit in range(width):
            along = Direction(site, self.members(group)[0], tuple(np.eye(width)[unit]), mean=0.0, scale=1.0)
            found.append((self.logits(group, moments, [Steer(site, along)]) - whole).mean(0))
        return np.stack(found, axis=-1)

    def units_read(self, group: str, site: str, slopes: np.ndarray) -> dict[str, tuple[int, ...]]:
        """By agent, the units of a site worth naming by what a standard deviation of each moves, of `slopes`."""
        spread = self.recording[site].to_numpy().std(0)  # [agent, unit]
        sizes = {(a, site): np.abs(slopes[k]).max(0) * spread[k] for k, a in enumerate(self.members(group))}
        return {agent: units for (agent, _), units in largest(sizes, self.question.smallest, self.floor(group)).items()}

    def floor(self, group: str) -> float:
        """FLOOR_SHARE of the largest standard deviation, over rows, of any of the driven logits of a group."""
        logits = self.recording.steps(group, "logits").to_numpy()[..., self.outputs[group]]
        return FLOOR_SHARE * float(logits.std(0).max())

    def nonsense(self) -> np.ndarray:
        """A label `[row]` that nobody can know: 0 or 1, drawn for each episode, anew in every instance, so that a draw
        that happens to go along with something is not counted four times."""
        episode, q = self.recording.rows["episode"].to_numpy(), self.question
        return np.random.default_rng([q.seed, int(q.shared), *f"{q.name} {q.network}".encode()]).integers(
            0, 2, int(episode.max()) + 1
        )[episode]

    def mixed_policy(self, group: str) -> QPolicy:
        """The group as a team, its logits taken as Q values, under a mixer whose weights are to be found."""
        q = self.question
        return mixed_policy(self.agents, group, mixing_weights(self.members(group), q.name, q.seed))

    def finding(
        self,
        analysis: str,
        attempts: tuple[str, ...],
        claims: list[Claim],
        *,
        abstains: tuple[str, ...] = (),
        doubts: tuple[str, ...] = (),
    ) -> Finding:
        q = self.question
        return Finding(analysis, q.name, q.network, q.shared, q.seed, attempts, tuple(claims), abstains, doubts)


Analyse = Callable[[Case], Finding]
ANALYSES: dict[str, Analyse] = {}


def analysis(name: str) -> Callable[[Analyse], Analyse]:
    """Registers a function that answers a case.

    Raises:
        ConfigError: another module's analysis has that name.
    """

    def enter(analyse: Analyse) -> Analyse:
        there = ANALYSES.get(name)
        if there is not None and there.__module__ != analyse.__module__:
            raise ConfigError(f"analysis {name!r} is registered already, by {there.__module__}")
        ANALYSES[name] = analyse
        return analyse

    return enter


def analyses(names: list[str] | None = None) -> dict[str, Analyse]:
    """Those of these names; None: all.

    Raises:
        UnknownNameError: there is none of a name.
    """
    package = importlib.import_module("marlnb.groundtruth.analyses")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    for name in names or ():
        if name not in ANALYSES:
            raise UnknownNameError(unknown("analysis", name, ANALYSES))
    return {name: ANALYSES[name] for name in sorted(ANALYSES) if names is None or name in names}


FLOOR_SHARE = 0.01
"""Share of the driven logits' standard deviation below which no effect is worth naming."""


def largest(
    sizes: Mapping[tuple[str, str], np.ndarray], smallest: float, floor: float = 0.0
) -> dict[tuple[str, str], tuple[int, ...]]:
    """Units worth naming at each (agent, site): those of at least `smallest` of the largest size at any agent's, and
    of at least `floor`."""
    top: dict[str, float] = {}
    for (_, site), found in sizes.items():
        top[site] = max(top.get(site, 0.0), float(found.max()))
    return {
        place: tuple(int(unit) for unit in np.flatnonzero(found >= max(floor, smallest * top[place[1]])))
        for place, found in sizes.items()
        if top[place[1]] > 0
    }


def claims_of_units(units: Mapping[tuple[str, str], tuple[int, ...]]) -> list[Claim]:
    """Units, sites and agents, as the units say."""
    named = {place: chosen for place, chosen in units.items() if chosen}
    agents = tuple(dict.fromkeys(agent for agent, _ in named))
    found = [Claim("units", agent=a, site=s, units=chosen) for (a, s), chosen in named.items()]
    return [*found, Claim("sites", sites=tuple(named)), Claim("agents", agents=agents)]
