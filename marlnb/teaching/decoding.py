"""Chapter 3, decode with controls: keeping episodes apart, what a score must be compared with, how many shuffles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from marlnb.teaching.checking import WrongAnswer, called, close, exercise, number, shown
from marlnb.teaching.choices import one_of

if TYPE_CHECKING:
    from marlnb.analysis.decoding.result import Decoding

EPISODES, STEPS = 20, 25


@exercise("3.1", "a function of the rows' episodes that gives (rows to fit, rows to test)")
def split(answer: Any) -> str:
    episode = np.repeat(np.arange(EPISODES), STEPS)
    found = called(answer, episode.copy(), by="split(episode)")
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise WrongAnswer("Two arrays of row numbers are asked for: those to fit, and those to test.")
    fit, test = map(_rows, found)
    if not len(fit) or not len(test):
        raise WrongAnswer(
            f"One of the two is empty: nothing is left to fit, or to test. Your function is tried on {EPISODES} other "
            f"episodes; does it count on {EPISODES * 5} of them?"
        )
    if set(fit) & set(test):
        raise WrongAnswer(
            "Some rows are in both. A decoder that is tested on what it was fitted to only shows its memory."
        )
    if max(*fit, *test) >= len(episode) or min(*fit, *test) < 0:
        raise WrongAnswer("There are row numbers that do not exist. Did you give episodes where rows are asked for?")
    if set(fit) <= set(range(EPISODES)) and set(test) <= set(range(EPISODES)):
        raise WrongAnswer("You give numbers of episodes. Rows are asked for: all rows whose episode is one of those.")
    shared = set(episode[fit]) & set(episode[test])
    if shared:
        raise WrongAnswer(
            f"{len(shared)} of {EPISODES} episodes have rows on both sides. Steps of one episode are nearly "
            "alike, and its "
            "goal never changes: who has seen some can answer the others from memory. Keep whole episodes together."
        )
    if len(fit) + len(test) < len(episode):
        raise WrongAnswer(
            f"{len(episode) - len(fit) - len(test)} rows are in neither. Nothing is wrong with them: use them."
        )
    if len(fit) <= len(test):
        raise WrongAnswer("Fit to more than you test with: a decoder from few episodes is poor for want of data.")
    if len(set(episode[test])) == 1:
        raise WrongAnswer(
            "Only one episode is tested, and it has only one goal: luck decides. Take about a fifth of them."
        )
    return (
        "No episode is on both sides. marlnb's decode does the same, five times over, so that each "
        "episode is tested once."
    )


exercise("3.2", "one of a, b, c, d")(
    one_of(
        "3.2",
        ("a", "b", "c", "d"),
        {
            "b049745b92": (
                "They reach the same score, so whatever the training did was not needed for it: the word is in "
                "the input."
            ),
        },
        {
            "16e93e8127": (
                "It is far above chance. That shows that the goal can be read, not that the network has done "
                "anything for it."
            ),
            "90a00ec4a6": (
                "Shuffled labels show what luck does, and the score is beyond it. Luck is not the problem here."
            ),
            "7e6645fb12": (
                "Without it one could not say. But something in the table reaches 1.00 as well: look along the row."
            ),
        },
    )
)


def _rows(found: Any) -> np.ndarray:
    """Row numbers, [row], of what may also be a mask."""
    rows = np.asarray(found)
    if rows.ndim != 1 or (len(rows) and not (rows.dtype == bool or np.issubdtype(rows.dtype, np.integer))):
        raise WrongAnswer(
            f"Each of the two is an array of row numbers, as np.arange(400), or a mask; one of yours is {shown(found)}."
        )
    return np.flatnonzero(rows) if rows.dtype == bool else rows.astype(int)


@exercise("3.3", "how much more of the goal's place the units hold than the observation alone, in R²")
def gained(answer: Any, decoding: Decoding) -> str:
    given, found = number(answer, "A difference in R²"), decoding.of()
    if close(given, found.score - found.observation, 0.01):
        return (
            "That much a linear reading of what the listener sees does not give. The network has put the word and the "
            "landmarks together, and an untrained one does not."
        )
    if close(given, found.observation - found.score, 0.01):
        raise WrongAnswer("The other way round: you took the units from the observation.")
    if close(given, found.score, 0.01):
        raise WrongAnswer(
            "That is all that the units hold. Some of it stands in the observation already: take that away."
        )
    if found.untrained is not None and close(given, found.score - found.untrained, 0.01):
        raise WrongAnswer(
            "That is what training has added to an untrained network. Asked is what goes beyond the observation."
        )
    if close(given, found.score / found.observation, 0.05):
        raise WrongAnswer("That is a ratio. R² can be 0 or negative: differences say more.")
    raise WrongAnswer("The decoding's score has the fields score and observation.")


@exercise("3.4", "the smallest number of shuffles with which a p-value of 0.01 is possible")
def shuffles(answer: Any) -> str:
    given = number(answer, "A number of shuffles")
    if given == 99:
        return "1 / (1 + 99) = 0.01: better than all of 99. With 9 shuffles no score, however good, gets below 0.1."
    if given == 100:
        raise WrongAnswer("Nearly: 1 / (1 + 100) is below 0.01 already. The true labels count as one of the draws.")
    if given < 0 or given != int(given):
        raise WrongAnswer("A number of shuffles is counted: 0, 1, 2 and so on.")
    if given < 99:
        raise WrongAnswer(f"With these the smallest p-value is 1 / (1 + {given:g}) = {1 / (1 + given):.3g}.")
    raise WrongAnswer("That is enough, but fewer do as well. The smallest p-value is 1 / (1 + shuffles).")
