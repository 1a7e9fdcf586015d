"""What every small game states: its options, and the answers that are known about it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from marlnb.config import EnvConfig, option
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec


@dataclass(frozen=True)
class Answer:
    """What is known about one moment when every agent plays its best from there on.

    Attributes:
        observation: of each agent, in the group's order: one number a feature.
        value: of each agent: its discounted return from here; None for an agent that is not asked for an action.
        action: of each agent: the choice, or the number, that is best; None where any is, or where it is not asked.
        team: the value of a team whose reward is the mean over its living agents; None where it is not known.
    """

    observation: tuple[tuple[float, ...], ...]
    value: tuple[float | None, ...]
    action: tuple[float | None, ...]
    team: float | None = None


@dataclass(frozen=True)
class GameConfig(EnvConfig):
    """A game of one group of agents whose best return is known."""

    state: bool = option(False, help="also give the global state: all agents' observations in a row")

    @property
    @abstractmethod
    def optimal_return(self) -> float:
        """Undiscounted return of an episode under the best policy, averaged over the agents."""

    @abstractmethod
    def answers(self, gamma: float) -> tuple[Answer, ...]:
        """What is known about the moments that the best policy meets, at a discount of `gamma`."""

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
