"""Chapter 2, train and read a curve: the return of chance, the final return, when it is learned, several seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from marlnb.plots.runs.learning import running_mean
from marlnb.teaching.checking import WrongAnswer, close, exercise, number
from marlnb.teaching.choices import choice
from marlnb.training.runs.run import Run

WINDOW, LEVEL = 10, -12.0  # of exercise 2.3


@exercise("2.1", "the mean return of two players who choose at random in the climbing game")
def by_chance(answer: Any) -> str:
    from marlnb.envs.games.matrix import ClimbingConfig

    value, payoffs = number(answer, "A return"), np.array(ClimbingConfig().payoffs)
    if close(value, payoffs.mean(), 0.02):
        return "All nine joint choices are equally likely: -31 / 9. The first point of your curves is there."
    if close(value, payoffs.mean(), 0.1):
        raise WrongAnswer("Nearly. Let Python divide, or give two decimal places.")
    if close(value, -payoffs.mean(), 0.1):
        raise WrongAnswer("The size is right, the sign is not: two penalties of 30 outweigh all gains together.")
    if close(value, payoffs.sum() / 3, 0.02):
        raise WrongAnswer("You divided by 3. Two players with three choices each: how many joint choices are there?")
    if close(value, payoffs.min(), 0.02):
        raise WrongAnswer(
            "That is the worst that can happen. How often does it happen, with nine equally likely choices?"
        )
    if close(value, payoffs.sum(), 0.02):
        raise WrongAnswer("That is the sum of the table. How likely is each of its nine cells?")
    if value == payoffs.max():
        raise WrongAnswer("That is the best that they can earn. What do they earn when they choose at random?")
    if close(value, float(np.median(payoffs)), 0.02):
        raise WrongAnswer("That is the median. The mean also depends on how bad the bad cells are.")
    if close(value, float(payoffs.diagonal().mean()), 0.02):
        raise WrongAnswer("You averaged the diagonal, where both choose the same. Random players agree by chance only.")
    raise WrongAnswer("Add up the nine payoffs, and think about how likely each of them is.")


@exercise("2.2", "the return at which the players settle")
def settled(answer: Any, run: Run) -> str:
    value, returns = number(answer, "A return"), run.metrics()["returns/agent"].to_numpy()
    end = float(returns[-len(returns) // 5 :].mean())
    if close(value, end, 0.3):
        if not close(end, 7, 0.3):
            return "That is where this curve ends. With the notebook's frames, they settle at 7, the payoff of (1, 1)."
        return (
            "7 is the payoff of (1, 1). (0, 0) pays 11, but the player who goes there first loses 30 while the other "
            "still explores. They could only get there together: 7 is a local optimum."
        )
    if close(value, 11, 0.3):
        raise WrongAnswer("11 is what they could earn. What do they earn in your curves?")
    if close(value, float(returns.mean()), 0.1):
        raise WrongAnswer("That is the mean over the whole training run, with the beginning. Look at the end only.")
    if close(value, float(returns[0]), 0.3):
        raise WrongAnswer("That is where they begin: they choose at random. Look at the end of the curve.")
    if close(value, -end, 0.3):
        raise WrongAnswer("The size is right, the sign is not: they do earn something.")
    raise WrongAnswer("Take the mean of the last fifth of the curve, where it is flat.")


@exercise("2.3", "the number of frames after which the mean of 10 iterations first exceeds -12")
def came_at(answer: Any, run: Run) -> str:
    value, metrics = number(answer, "A number of frames"), run.metrics()
    smooth = metrics["returns/listener"].rolling(WINDOW).mean()
    frames = metrics["frames"].to_numpy()
    passed = int(np.argmax(smooth.to_numpy() > LEVEL))
    if close(value, frames[passed], 2 * frames[0]):
        return (
            "More than half of the training is over by then. Before, they learned to move, but not yet to communicate."
        )
    if value <= 0:
        raise WrongAnswer(
            "A number of frames is above 0. The question is *when* the curve passes -12, not how high it is."
        )
    if value < frames[0] and (value > len(metrics) or value != int(value)):
        raise WrongAnswer(
            f"The figure's axis counts thousands of frames: {value:g} there is {1000 * value:,.0f} frames. Give frames."
        )
    if value <= len(metrics):
        raise WrongAnswer(
            f"That looks like an iteration. One iteration here is {frames[0]:,} frames (environment steps)."
        )
    if close(value, frames[int(np.argmax(metrics["returns/listener"].to_numpy() > LEVEL))], frames[0]):
        raise WrongAnswer(
            "At that point a single iteration was above it, by luck: the next ones are below. Smooth the curve first."
        )
    if value > frames[-1]:
        raise WrongAnswer(f"The training ended after {frames[-1]:,} frames.")
    if value < frames[WINDOW - 1]:
        raise WrongAnswer(f"The first mean of {WINDOW} iterations is known after {frames[WINDOW - 1]:,} frames.")
    level = float(np.interp(value, frames, smooth.to_numpy()))
    drawn = running_mean(metrics["returns/listener"].to_numpy(), WINDOW)
    if level <= LEVEL < float(np.interp(value, frames, drawn)):
        raise WrongAnswer(
            "The thick curve is above -12 there, but each mean that it shows also counts iterations that came later. "
            f"The mean of the last {WINDOW} iterations is at {level:.1f}. Compute it with `rolling`."
        )
    if value > frames[passed]:
        raise WrongAnswer(
            f"There the curve is at {level:.1f}, above -12. But the question is the first time, and that was earlier."
        )
    early = " That early, they only learn to move towards the middle." if value < 200_000 else ""
    raise WrongAnswer(f"There the smoothed curve is at {level:.1f}, so not above -12 yet.{early}")


choice(
    "2.4",
    {
        "78e8fd22ac": "The two intervals overlap a lot, and three seeds are few. Run more seeds before you decide.",
        "de4b2df32f": (
            "Its mean is larger, but look how far apart its seeds are: if drawn again, the order may well reverse."
        ),
        "f88c8d1163": (
            "One good seed is the best result, not the expected one: the method with more seeds would always win."
        ),
        "d1d40c3902": (
            "No clear difference does not mean that they are equal. With three seeds, a large difference can stay "
            "hidden."
        ),
    },
)
