"""The result of a communication analysis: bits, the code book, and the causal influence of messages."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from marlnb.analysis.results import ALPHA, Result
from marlnb.analysis.stats.bootstrap import Interval
from marlnb.analysis.stats.mutual_information import MutualInformation
from marlnb.display.notebook_html import frame_html

MIN_INFLUENCE_BITS = 0.01
MIN_SYNERGY_BITS = 0.05
"""Bits that a pair must have beyond its parts; less is within the error of the corrected estimates."""


@dataclass(frozen=True)
class Combination:
    """What the message shows about the goal together with another quantity that the speaker observes.

    Attributes:
        other: name of the quantity.
        bits: mutual information of the message and the pair (goal, other), by jackknife.
        alone: the larger sum of parts, `I(message; goal) + I(message; other)`, corrected in the same way.
        p_value: of `bits` against pairings with other episodes; Holm over the combinations.
    """

    other: str
    bits: float
    alone: float
    p_value: float

    @property
    def synergy(self) -> float:
        """Bits that the message shows about the pair and about neither alone, as an XOR does; at least 0.

            I(message; (goal, other)) - I(message; goal) - I(message; other)

        Source: McGill 1954, Multivariate Information Transmission ("interaction information").
        """
        return max(self.bits - self.alone, 0.0)


@dataclass(frozen=True, eq=False, repr=False)
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
            since both may follow from what both agents observe. None if that action is not one discrete choice.
        following: mutual information of the goal and that action; None like `listening`.
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
        combinations: what the message shows about the goal together with each other discrete quantity that the speaker
            observes: a code such as "goal XOR other" tells nothing of either alone.
        notes: facts that are no reason for distrust, such as rows without a label.
        warnings: reasons not to trust the result.
    """

    speaker: str
    listener: str
    message: str
    goal: str
    lag: int
    signalling: MutualInformation
    listening: MutualInformation | None
    following: MutualInformation | None
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
    combinations: tuple[Combination, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def speaks(self) -> bool:
        """Positive signalling (Lowe et al. 2019): the message tells the goal, beyond chance."""
        return self.signalling.p_value < ALPHA

    @property
    def joint_codes(self) -> tuple[Combination, ...]:
        """Combinations about which the message shows more than about their parts, beyond chance; the largest first."""
        joint = [c for c in self.combinations if c.p_value < ALPHA and c.synergy > MIN_SYNERGY_BITS]
        return tuple(sorted(joint, key=lambda combination: -combination.synergy))

    @property
    def listens(self) -> bool | None:
        """Positive listening (Lowe et al. 2019): the message changes the listener's actions by 0.01 bits or more.

        None if the causal influence is not available.
        """
        return None if self.influence is None else self.influence.low > MIN_INFLUENCE_BITS

    def table(self) -> pd.DataFrame:
        """One row for each mutual information."""
        names = ("signalling", "listening", "following", "consistency")
        measures = {name: getattr(self, name) for name in names}
        return pd.DataFrame([{"measure": name, **asdict(of)} for name, of in measures.items() if of is not None])

    @property
    def verdict(self) -> str:
        return f"{self._signalling()}; {self._listening()}; {self.n_episodes} episodes."

    def _signalling(self) -> str:
        signal = self.signalling
        bits = f"{signal.corrected:.2f} of {signal.entropy_b:.2f} bits of {self.goal}"
        evidence = f"(95% interval [{signal.low:.2f}, {signal.high:.2f}], "
        evidence += f"p = {signal.p_value:.2g})"
        text = f"The {self.message} of {self.speaker} tells {bits} {evidence}"
        if not self.speaks:
            text = f"Not shown that the {self.message} of {self.speaker} tells {self.goal} alone: {bits} {evidence}"
        if self.joint_codes:
            joint = self.joint_codes[0]
            together = f"{joint.bits:.2f} bits of {self.goal} and {joint.other} together"
            return f"{text}, and {together}, {joint.synergy:.2f} more than of both alone (p = {joint.p_value:.2g})"
        if self.speaks:
            return text
        if self.combinations:
            others = f"any of {len(self.combinations)} other quantities that it observes"
            untested = "further quantities and codes of three or more quantities were not tested"
            return f"{text}, nor together with {others} ({untested})"
        return f"{text}; combinations with other quantities were not tested"

    def _listening(self) -> str:
        influence = self.influence
        if influence is None:
            return f"whether {self.listener} listens was not tested"
        bits = f"{influence.value:.2f} bits [{influence.low:.2f}, {influence.high:.2f}]"
        changed = f"exchanging the message while all else stays changes its actions by {bits}"
        if self.listens:
            return f"{self.listener} listens: {changed}"
        shown = "does not listen" if influence.high <= MIN_INFLUENCE_BITS else "is not shown to listen"
        return f"{self.listener} {shown}: {changed}"

    def _repr_table(self) -> pd.DataFrame:
        return self.table()[["measure", "a", "b", "corrected", "low", "high", "p_value"]]

    def _repr_html_(self) -> str:
        code = pd.DataFrame(self.code.astype(int), index=list(self.messages), columns=list(self.goals))
        return super()._repr_html_() + frame_html(code)
