"""The options of a small game, and its known answers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from marlnb.config import EnvConfig, option
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

Payoffs = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Answer:
    """What is known about one time step if every agent plays optimally from there on.

    Attributes:
        observation: of each agent, in the group's order: one number per feature.
        value: of each agent: its discounted return from here; None for an agent that does not act now.
        action: of each agent: the best choice or number; None if all are equally good, or if it does not act now.
        team: the value of a team whose reward is the mean over its living agents; None if it is not known.
    """

    observation: tuple[tuple[float, ...], ...]
    value: tuple[float | None, ...]
    action: tuple[float | None, ...]
    team: float | None = None


@dataclass(frozen=True)
class GameConfig(EnvConfig):
    """A game of one group of agents whose best return is known."""

    state: bool = option(False, help="provide the global state: all agents' observations, concatenated")

    @property
    @abstractmethod
    def optimal_return(self) -> float:
        """Undiscounted return of an episode under the optimal policy, averaged over the agents."""

    @abstractmethod
    def answers(self, gamma: float) -> tuple[Answer, ...]:
        """The answers for the time steps that the optimal policy visits, with the discount `gamma`."""

    def game_spec(
        self,
        *,
        agents: tuple[str, ...],
        features: tuple[str, ...],
        action: ActionSpec,
        max_steps: int,
        simultaneous: bool = True,
    ) -> EnvSpec:
        """The spec of a game of one group, named as its agents are."""
        group = GroupSpec(
            agents[0].rpartition("_")[0], agents, ObservationSpec((len(features),), names=features), action
        )
        shape = (len(agents) * len(features),) if self.state else None
        return EnvSpec(self.name, (group,), shape, max_steps, simultaneous=simultaneous)


def numbered(stem: str, n: int) -> tuple[str, ...]:
    """`<stem>_0` to `<stem>_(n - 1)`."""
    return tuple(f"{stem}_{index}" for index in range(n))
