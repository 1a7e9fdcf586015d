"""The result of a communication analysis: bits, the code book, and the causal influence of messages."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from marlnb.analysis.results import ALPHA, Result
from marlnb.analysis.stats.bootstrap import Interval
from marlnb.analysis.stats.mutual_information import MutualInformation

MIN_INFLUENCE_BITS = 0.01


@dataclass(frozen=True, eq=False)
class Communication(Result):
    """How a speaker's message relates to its goal and to what the listener does.

    Attributes:
        speaker: the speaker's name.
        listener: the listener's name.
        message: name of the message.
        goal: name of the goal.
        lag: steps from the message to the listener's action.
        signalling: mutual information of message and goal; positive signalling if it is beyond chance.
        listening: mutual information of the message and the listener's action `lag` steps later. A correlation only,
            since both may follow from what both agents observe.
        following: mutual information of the goal and that action.
        consistency: mutual information of the message and the speaker's own other action (speaker consistency); None
            if it has none.
        influence: causal influence of communication in bits: what the message tells about the listener's action when
            the message is exchanged and the rest of its observation stays; positive listening if it is above 0. None
            if it is not available.
        influence_at: `[time]`, the same by time step.
        times: `[time]`.
        context_independence: 0 to 1, whether each goal has one message of its own.
        code: `[message, goal]`, counts of rows.
        messages: `[message]`, names.
        goals: `[goal]`, names.
        n_rows: pairs of a message and an action.
        n_episodes: their episodes.
        notes: facts that are no reason for distrust, such as rows without a label.
        warnings: reasons not to trust the result.
    """

    speaker: str
    listener: str
    message: str
    goal: str
    lag: int
    signalling: MutualInformation
    listening: MutualInformation
    following: MutualInformation
    consistency: MutualInformation | None
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
        """Positive signalling (Lowe et al. 2019): the message tells the goal, beyond chance."""
        return self.signalling.p_value < ALPHA

    @property
    def listens(self) -> bool | None:
        """Positive listening (Lowe et al. 2019): the message changes the listener's actions by 0.01 bits or more.

        None if the causal influence is not available.
        """
        return None if self.influence is None else self.influence.low > MIN_INFLUENCE_BITS

    def table(self) -> pd.DataFrame:
        """One row for each mutual information."""
        measures = {"signalling": self.signalling, "listening": self.listening, "following": self.following}
        if self.consistency is not None:
            measures["consistency"] = self.consistency
        return pd.DataFrame([{"measure": name, **asdict(measure)} for name, measure in measures.items()])

    def __repr__(self) -> str:
        signalling, influence = self.signalling, self.influence
        causal = (
            "causal influence not available"
            if influence is None
            else f"causal influence {influence.value:.2f} bits [{influence.low:.2f}, {influence.high:.2f}]"
        )
        return (
            f"Communication({self.speaker} to {self.listener}: message tells {signalling.corrected:.2f} of "
            f"{signalling.entropy_b:.2f} bits of {self.goal} (chance {signalling.chance:.2f}), {causal}{self.remarks})"
        )

    def _repr_html_(self) -> str:
        code = pd.DataFrame(self.code.astype(int), index=list(self.messages), columns=list(self.goals))
        return f"{super()._repr_html_()}{code.to_html()}"
