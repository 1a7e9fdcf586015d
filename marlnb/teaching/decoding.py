"""Chapter 3, decode with controls: splitting by episode, comparisons for a score, the number of shuffles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from marlnb.teaching.checking import WrongAnswer, called, close, describe, exercise, number
from marlnb.teaching.choices import choice

if TYPE_CHECKING:
    from marlnb.analysis.decoding.result import Decoding

EPISODES = 20
LENGTHS = np.arange(15, 15 + EPISODES)  # steps; they differ, so that a split by rows cuts through an episode


@exercise("3.1", "a function of the rows' episodes that gives (rows to fit, rows to test)")
def split(answer: Any) -> str:
    episode = np.repeat(np.arange(EPISODES), LENGTHS)
    result = called(answer, episode.copy(), by="split(episode)")
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise WrongAnswer("The function returns two arrays of row numbers: rows to fit, and rows to test.")
    fit, test = map(_rows, result)
    if not len(fit) or not len(test):
        raise WrongAnswer(
            f"One of the two is empty: nothing is left to fit, or to test. It is called with {EPISODES} other "
            f"episodes; does it count on {EPISODES * 5} of them?"
        )
    if set(fit) & set(test):
        raise WrongAnswer(
            "Some rows are in both. A decoder that is tested on its training rows only shows what it memorised."
        )
    if max(*fit, *test) >= len(episode) or min(*fit, *test) < 0:
        raise WrongAnswer("Some row numbers do not exist. Did you return episodes instead of rows?")
    if set(fit) <= set(range(EPISODES)) and set(test) <= set(range(EPISODES)):
        raise WrongAnswer("You return numbers of episodes. Return rows: all rows whose episode is one of those.")
    shared = set(episode[fit]) & set(episode[test])
    if shared:
        raise WrongAnswer(
            f"{len(shared)} of {EPISODES} episodes, which have different lengths here, have rows on both sides. The "
            "steps of an episode are similar, and its goal never changes: a decoder that knows some steps knows the "
            "others. Keep whole episodes together."
        )
    if len(set(fit)) < len(fit) or len(set(test)) < len(test):
        raise WrongAnswer("Some rows occur more than once in one of the two, and would count more. Return each once.")
    if len(fit) + len(test) < len(episode):
        raise WrongAnswer(
            f"{len(episode) - len(fit) - len(test)} rows are in neither. There is nothing wrong with them: use them."
        )
    if len(fit) <= len(test):
        raise WrongAnswer(
            "Fit to more rows than you test with: a decoder fitted to few episodes is poor because it lacks data."
        )
    if len(set(episode[test])) == 1:
        raise WrongAnswer(
            "Only one episode is tested, and it has only one goal: luck decides. Test about a fifth of the episodes."
        )
    return (
        "No episode is on both sides. marlnb's decode does the same, five times over, so that each "
        "episode is tested once."
    )


choice(
    "3.2",
    {
        "b049745b92": "They reach the same score, so the training was not needed for it: the word is in the input.",
        "16e93e8127": (
            "It is far above chance. That shows that the goal can be decoded, not that the network has done anything "
            "for it."
        ),
        "90a00ec4a6": "Shuffled labels show the score of luck, and this score is higher. Luck is not the problem here.",
        "7e6645fb12": (
            "Without it, one could not say. But something else in the table reaches 1.00 too: look along the row."
        ),
    },
)


def _rows(values: Any) -> np.ndarray:
    """Row numbers `[row]`, from row numbers or a mask."""
    rows = np.asarray(values)
    if rows.ndim != 1 or (len(rows) and not (rows.dtype == bool or np.issubdtype(rows.dtype, np.integer))):
        raise WrongAnswer(
            f"Both are arrays of row numbers, e.g. np.arange(400), or masks; one of yours is {describe(values)}."
        )
    return np.flatnonzero(rows) if rows.dtype == bool else rows.astype(int)


@exercise("3.3", "how much more of the goal's position the units hold than the observation alone, in R²")
def gained(answer: Any, decoding: Decoding) -> str:
    value, score = number(answer, "A difference in R²"), decoding.of()
    if close(value, score.score - score.observation, 0.01):
        return (
            "A linear decoder of the observation does not reach this. The network has combined the word and the "
            "landmarks, and an untrained network does not."
        )
    if close(value, score.observation - score.score, 0.01):
        raise WrongAnswer("It is the other way round: you subtracted the units from the observation.")
    if close(value, score.score, 0.01):
        raise WrongAnswer("That is all that the units hold. Some of it is in the observation already: subtract that.")
    if score.untrained is not None and close(value, score.score - score.untrained, 0.01):
        raise WrongAnswer(
            "That is what training added to an untrained network. The question is what goes beyond the observation."
        )
    if close(value, score.score / score.observation, 0.05):
        raise WrongAnswer("That is a ratio. R² can be 0 or negative, so use the difference.")
    raise WrongAnswer("The decoding's score has the fields score and observation.")


@exercise("3.4", "the smallest number of shuffles with which a p-value of 0.01 is possible")
def shuffles(answer: Any) -> str:
    value = number(answer, "A number of shuffles")
    if value == 99:
        return "1 / (1 + 99) = 0.01: better than all 99. With 9 shuffles, no score, however good, gets below 0.1."
    if value == 100:
        raise WrongAnswer("Nearly: 1 / (1 + 100) is below 0.01 already. The true labels count as one of the draws.")
    if value < 0 or value != int(value):
        raise WrongAnswer("A number of shuffles is counted: it is 0, 1, 2 and so on.")
    if value < 99:
        raise WrongAnswer(f"With these the smallest p-value is 1 / (1 + {value:g}) = {1 / (1 + value):.3g}.")
    raise WrongAnswer("That is enough, but fewer do as well: the smallest p-value is 1 / (1 + shuffles).")
