"""What passes between a speaker and a listener: bits, the code book, and what a message does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.data.missing_labels import told_of
from marlnb.analysis.results import doubts, shown_as_html
from marlnb.analysis.stats.bootstrap import Interval
from marlnb.analysis.stats.mutual_information import Information

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Communication:
    """How a speaker's message goes with its goal and with what the listener does.

    Attributes:
        signalling: what the message tells about the goal: positive signalling where beyond chance.
        listening: what the message tells about the listener's action `lag` steps later; correlation only, since both
            may follow from what both see.
        following: what the goal tells about that action.
        consistency: what the message tells about the speaker's own other action (speaker consistency), None where it
            has none.
        influence: causal influence of communication in bits: what the message tells about the listener's action when it
            is exchanged and all else that the listener sees stays; positive listening. None where it cannot be had.
        influence_at: `[t]`, the same by time step; times: `[t]`.
        context_independence: in 0 to 1, how far one message stands for one goal.
        code: `[message, goal]`, rows counted; messages, goals: their names.
    """

    speaker: str
    listener: str
    message: str
    goal: str
    lag: int
    signalling: Information
    listening: Information
    following: Information
    consistency: Information | None
    influence: Interval | None
    influence_at: np.ndarray
    times: np.ndarray
    context_independence: float
    code: np.ndarray
    messages: tuple[str, ...]
    goals: tuple[str, ...]
    n_rows: int
    n_episodes: int
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def speaks(self) -> bool:
        """Positive signalling: the message tells the goal, beyond chance."""
        return self.signalling.p_value < SIGNIFICANT

    @property
    def listens(self) -> bool | None:
        """Positive listening: exchanging the message changes what the listener does, by 0.01 bits or more; None where
        that could not be tried."""
        return None if self.influence is None else self.influence.low > 0.01

    def table(self) -> pd.DataFrame:
        """One line for each mutual information."""
        named = {"signalling": self.signalling, "listening": self.listening, "following": self.following}
        if self.consistency is not None:
            named["consistency"] = self.consistency
        return pd.DataFrame([{"measure": name, **asdict(found)} for name, found in named.items()])

    def to_json(self) -> dict[str, Any]:
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(self).items()}

    def __repr__(self) -> str:
        flag = told_of(self.notes) + doubts(self.warnings)
        s, influence = self.signalling, self.influence
        causal = (
            "its influence could not be tried"
            if influence is None
            else f"causal influence {influence.value:.2f} bits [{influence.low:.2f}, {influence.high:.2f}]"
        )
        return (
            f"Communication({self.speaker} to {self.listener}: message tells {s.corrected:.2f} of "
            f"{s.entropy_b:.2f} bits of {self.goal} (chance {s.chance:.2f}), {causal}{flag})"
        )

    def _repr_html_(self) -> str:
        code = pd.DataFrame(self.code.astype(int), index=list(self.messages), columns=list(self.goals))
        return f"{shown_as_html(repr(self), self.warnings, self.table())}{code.to_html()}"
