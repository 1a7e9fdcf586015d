"""Patch: inserts activations from another episode, time or agent of a recording, or from another agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from marlnb.errors import ConfigError, ShapeError, unknown
from marlnb.models.hooks import episode_context
from marlnb.models.hooks.activation_sources import ActivationSource, open_activation_source, source_path
from marlnb.models.hooks.apply_edits import check_one_time_step
from marlnb.models.hooks.edit import EDITS, Change, Edit, EditTarget

Episode = int | Literal["same", "other"]


@EDITS.register("patch")
@dataclass(frozen=True)
class Patch(Edit):
    """Activation patching: replaces activations by those of a source, `h_target' = h_source`.

    With a recording as `source`, the values come from its episode `episode`, at the step `at` or at the environment's
    own step plus `shift`. Where that episode has no such step, or the agent is dead there, its activation stays
    unchanged. Without one, they come from other agents of the same group at the same step. Path patching is a Patch at
    the receiving site whose source recording was made with an edit at the sending site.

    Attributes:
        source: a recording, or its path.
        from_agents: the agent to copy from, or one for each patched agent, in the group's order; None: each agent's
            own recorded activations, which needs a source.
        episode: an episode number of the recording; "same", the number that the environment plays (a rollout with the
            recording's seed has the same episodes); "other", the next recorded episode after that.
        at: a step of the source episode; None: the environment's own step.
        shift: added to the environment's own step.
        digest: the digest that the recording must have.
    Source: Vig et al. 2020 (arXiv:2004.12265); Meng et al. 2022 (arXiv:2202.05262); path patching, Wang et al. 2022
        (arXiv:2211.00593) and Goldowsky-Dill et al. 2023 (arXiv:2304.05969).
    """

    source: str | None = None
    from_agents: tuple[str, ...] | None = field(default=None, kw_only=True)
    episode: Episode = field(default="same", kw_only=True)
    at: int | None = field(default=None, kw_only=True)
    shift: int = field(default=0, kw_only=True)
    digest: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "source", source_path(self.source))
        if self.from_agents is not None:
            agents = (self.from_agents,) if isinstance(self.from_agents, str) else tuple(self.from_agents)
            object.__setattr__(self, "from_agents", agents)
        if self.source is None and self.from_agents is None:
            raise ConfigError("Patch needs source=, a recording, or from_agents=, agents of the same step")
        if not isinstance(self.episode, int) and self.episode not in ("same", "other"):
            raise ConfigError(unknown("episode of a patch", str(self.episode), ("same", "other", "a number")))
        if self.source is None and (self.episode != "same" or self.at is not None or self.shift):
            raise ConfigError("a patch from another agent of the same step accepts no episode, at or shift")

    def bind(self, target: EditTarget) -> Change:
        agents = self._source_agents(target)
        if self.source is None:
            rows = [_row_of(agent, target) for agent in agents]
            units = torch.tensor(target.units)
            return lambda values, output: output[..., rows, :][..., units.to(output.device)]
        source, units_list = open_activation_source(self.source, self.digest), list(target.units)
        recorded = torch.stack(  # [row, agent, unit]
            [torch.from_numpy(source.values(target.site.name, agent)[:, units_list]) for agent in agents], dim=1
        )
        table, alive = RowTable(source), _alive(source, agents, target)

        def insert(values: Tensor, output: Tensor) -> Tensor:
            time_step = episode_context.now(f"the patch at {self.site!r}")
            check_one_time_step(output, time_step.t, target)
            t = time_step.t + self.shift if self.at is None else torch.full_like(time_step.t, self.at)
            rows = table.rows(table.episodes(self.episode, time_step.episode), t)
            exists = (rows >= 0)[:, None] & alive[rows.clamp(min=0)]  # [env, agent]
            patched = recorded[rows.clamp(min=0)].to(values)
            if bool(exists.all()):
                return patched
            return torch.where(exists.to(values.device)[..., None], patched, values)

        return insert

    def _source_agents(self, target: EditTarget) -> Sequence[str]:
        """For each patched agent the agent to copy from."""
        if self.from_agents is None:
            return target.agents
        if len(self.from_agents) == 1:
            return self.from_agents * len(target.agents)
        if len(self.from_agents) != len(target.agents):
            raise ShapeError(
                f"got {len(self.from_agents)} from_agents for the agents {', '.join(target.agents)}; "
                "give one, or one for each"
            )
        return self.from_agents


def _alive(source: ActivationSource, agents: Sequence[str], target: EditTarget) -> Tensor:
    """`[row, agent]` bool, where an agent to copy from is alive; everywhere if one forward pass serves all agents."""
    if target.site.shared_forward:
        return torch.ones(len(source.t), len(agents), dtype=torch.bool)
    return torch.stack([torch.from_numpy(source.alive(agent)) for agent in agents], dim=1)


class RowTable:
    """The row of a recording for an episode number and a step."""

    def __init__(self, source: ActivationSource) -> None:
        self.recorded = torch.tensor(np.unique(source.episode), dtype=torch.long)
        if not len(self.recorded):
            raise ConfigError("the recording to patch from has no rows")
        shape = (int(source.episode.max()) + 1, int(source.t.max()) + 1)
        self._table = torch.full(shape, -1, dtype=torch.long)
        episode, t = (torch.tensor(column, dtype=torch.long) for column in (source.episode, source.t))
        self._table[episode, t] = torch.arange(len(t))

    def episodes(self, which: Episode, playing: Tensor) -> Tensor:
        """The source episode `[env]` for each environment; -1 for one that does not count.

        Args:
            which: the choice, as in `Patch.episode`.
            playing: `[env]`, the numbers of the episodes that the environments play; -1 does not count.
        Raises:
            ConfigError: the episode is not recorded.
        """
        counts = playing >= 0
        if which == "other":
            position = torch.searchsorted(self.recorded, playing.clamp(min=0), right=True)
            episode = self.recorded[position % len(self.recorded)]
        else:
            episode = playing if which == "same" else torch.full_like(playing, int(which))
            missing = episode[counts & ~torch.isin(episode, self.recorded)]
            if len(missing):
                raise ConfigError(
                    f"the recording to patch from has no episode {int(missing[0])}; it has {len(self.recorded)}, "
                    f"from {int(self.recorded[0])} to {int(self.recorded[-1])}"
                )
        return torch.where(counts, episode, -1)

    def rows(self, episode: Tensor, t: Tensor) -> Tensor:
        """`[env]`, -1 where there is none."""
        n_episodes, n_steps = self._table.shape
        exists = (episode >= 0) & (episode < n_episodes) & (t >= 0) & (t < n_steps)
        return torch.where(exists, self._table[episode.clamp(0, n_episodes - 1), t.clamp(0, n_steps - 1)], -1)


def _row_of(agent: str, target: EditTarget) -> int:
    """Position of an agent to copy from in the output of the target's module.

    Raises:
        ShapeError: the agent is not in the group, or another module computes its activations.
    """
    names = target.policy.group.agents
    if agent not in names:
        raise ShapeError(unknown(f"agent in the group {target.policy.group.name!r}", agent, names))
    for site in (target.site, *target.policy.sites()):
        if site.module is target.site.module and not site.shared_forward:
            row = site.row_of(names.index(agent))
            if row is not None:
                return row
    raise ShapeError(
        f"{agent} and {', '.join(target.agents)} do not share the module of {target.site.name!r}; "
        "patch from a recording: Patch(site, source=recording, from_agents=...)"
    )
