"""Chapter 1, what an agent sees: features, messages, the limits of knowledge, rewards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from marlnb.teaching.checking import WrongAnswer, called, close, exercise, number

if TYPE_CHECKING:
    from marlnb.envs.vector import VectorEnv

ENVIRONMENT = "mpe/simple_speaker_listener"
N_ENVS = 64
SEED = 4711


def game(n_envs: int = N_ENVS) -> VectorEnv:
    """Games with goals that the notebook has not seen."""
    from marlnb.experiment import Experiment

    return Experiment.compose(f"env={ENVIRONMENT}", "algorithm=ippo").env.build(n_envs)


def feature_names(group: str) -> tuple[str, ...]:
    """What a group's agents observe in the exercises' game."""
    with game(1) as env:
        return tuple(env.spec.group(group).observation.names)


@exercise("1.1", "how many numbers the listener observes at each step")
def how_many(answer: Any) -> str:
    value, listener, speaker = number(answer, "A count"), len(feature_names("listener")), len(feature_names("speaker"))
    if value == listener:
        return "Its own velocity (2), the relative positions of the three landmarks (6), the word that it hears (3)."
    if value == speaker:
        raise WrongAnswer("That is how many the speaker observes. Each group has its own spec.")
    if value == listener + speaker:
        raise WrongAnswer("That is what both see together. But each agent acts on its own observation only.")
    if value == 2:
        raise WrongAnswer("That is how many agents there are. How long is one observation of the listener?")
    if value % listener == 0 and value > 0:
        raise WrongAnswer(f"That is {value / listener:g} games together. How much does one listener see, in one game?")
    if 0 < value < listener:
        raise WrongAnswer(f"That is a part of it. Count all names next to 'listener': there are more than {value:g}.")
    raise WrongAnswer("Look at the length of the last axis of the listener's observation, [env, agent, feature].")


@exercise("1.2", "a list of the names of the listener's features that carry what the speaker says")
def which_carry(answer: Any) -> str:
    answer = answer.tolist() if hasattr(answer, "tolist") else answer  # an array of numpy or torch
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise WrongAnswer('Give a list of names, such as ["velocity_x", "velocity_y"].')
    given = list(answer)  # a generator can be read once
    if any(isinstance(name, int) for name in given):
        raise WrongAnswer("Those are indices in the list of features. Give their names, which everyone can read.")
    names, listener = {str(name) for name in given}, feature_names("listener")
    words = {name for name in listener if name.startswith("message")}
    if names == words:
        return "One of them is 1 and the others are 0; before anything is said, all are 0."
    if strange := sorted(names - set(listener)):
        mine = " That is what the speaker sees." if set(strange) & set(feature_names("speaker")) else ""
        raise WrongAnswer(f"The listener has no feature {strange[0]!r}.{mine} It has: {', '.join(listener)}.")
    if any(name.startswith("landmark") for name in names):
        raise WrongAnswer(
            "The positions of the landmarks are seen by the listener itself. The speaker does not say them."
        )
    if any(name.startswith("velocity") for name in names):
        raise WrongAnswer("The listener knows its own velocity. The speaker does not say it.")
    if not names:
        raise WrongAnswer("The list is empty. Which of the names next to 'listener' have to do with hearing?")
    right = f"{', '.join(sorted(names))}: that is right"
    raise WrongAnswer(f"{right}, but there are more. There is one feature for each word that can be said.")


@exercise("1.3", "a function of the speaker's observations [env, feature] that gives the goals' numbers [env]")
def goal_of(answer: Any) -> str:
    import torch

    with game() as env:
        step = env.reset(SEED)
        seen, goal = step.groups["speaker"].observation[:, 0], env.labels()["goal"].long()
        answered = called(answer, seen.clone(), by="goal_of(observation)")
    try:
        goals = torch.as_tensor(answered)
    except (TypeError, ValueError, RuntimeError):
        both = " torch's max gives values and places: .values and .indices." if hasattr(answered, "indices") else ""
        raise WrongAnswer(f"Return numbers, one for each game; yours gives {_kind(answered)}.{both}") from None
    if goals.shape == seen.shape:
        raise WrongAnswer("For each game you return three numbers. Return one: the index of the largest of the three.")
    if goals.shape != goal.shape:
        raise WrongAnswer(
            f"For {N_ENVS} observations, return {N_ENVS} goals; your answer has the shape {list(goals.shape)}. "
            f"{_axis(tuple(goals.shape), tuple(seen.shape))}"
        )
    if goals.is_floating_point() and bool((goals != goals.round()).any()):
        raise WrongAnswer(
            "It returns amounts of colour. Return the goal's number, 0, 1 or 2: at which index is the largest amount?"
        )
    share = float((goals.long() == goal).float().mean())
    if share == 1:
        return f"In {N_ENVS} new games it finds every goal. The speaker sees the goal; the listener has to hear it."
    if bool((goals == goals[0]).all()):
        raise WrongAnswer("It gives the same goal in every game. Does it look along the features, the last axis?")
    if bool((goals.long() == goal + 1).all()):
        raise WrongAnswer("All are one too large: goals are counted from 0, like everything in Python.")
    if bool((goals.long() == seen.argmin(-1)).all()):
        raise WrongAnswer("That is the index of the smallest number. The goal's colour is the largest one.")
    raise WrongAnswer(
        f"It finds {share:.0%} of the goals; guessing would find a third. Print an observation next to its goal."
    )


def _kind(answer: Any) -> str:
    return f"{answer!r}" if isinstance(answer, str) else f"a {type(answer).__name__}"


def _axis(shape: tuple[int, ...], seen: tuple[int, ...]) -> str:
    """What happened to the axes `[env, feature]`."""
    if shape == ():
        return "That is one for all games together: look along the last axis only (-1)."
    if shape == seen[1:]:
        return "You look along the games (axis 0), and compare games with each other. Look along the features (-1)."
    if shape == (seen[0], 1):
        return "The last axis is left over: take its only element, [:, 0]."
    return "From [env, feature] you need one number for each game, [env]."


@exercise("1.4", "the share of goals that a listener's best guess gets right at the first step")
def at_first(answer: Any) -> str:
    value = number(answer, "A share")
    if close(value, 1 / 3, 0.01):
        return "Three goals, equally likely, and no word yet. A higher share at the first step would be a mistake."
    if not 0 <= value <= 1:
        raise WrongAnswer("A share is between 0 and 1: in what share of games would the guess be right? 10% is 0.1.")
    if close(value, 1.0, 0.01):
        raise WrongAnswer("You let it hear the word. What does the message hold at the first step, t = 0?")
    if close(value, 0.0, 0.01):
        raise WrongAnswer("Not knowing is not the same as being wrong: some blind guesses are right.")
    if close(value, 2 / 3, 0.01):
        raise WrongAnswer("That is how many guesses are wrong. The question is how many are right.")
    if close(value, 0.5, 0.01):
        raise WrongAnswer("Half of the guesses would be right with two goals. How many landmarks are there?")
    raise WrongAnswer("How many goals are there, how likely is each, and does anything seen at t = 0 tell them apart?")


@exercise("1.5", "a function of (dx, dy), the vector from the listener to the goal, that gives the reward")
def reward(answer: Any) -> str:
    points = ((0.0, 0.0), (1.0, 0.0), (0.3, -0.4), (-2.0, 1.0))
    rewards = [number(called(answer, x, y, by=f"reward({x}, {y})"), "A reward") for x, y in points]
    squared = [x * x + y * y for x, y in points]

    def gives(values: Iterable[float]) -> bool:
        return all(close(a, b, 1e-4) for a, b in zip(rewards, values))

    if gives(-d for d in squared):
        return "It is squared, so the last steps to the goal gain little, and being far away costs much."
    if gives(squared):
        raise WrongAnswer("The size is right, the sign is not: yours pays for being far away.")
    if gives(d**0.5 for d in squared):
        raise WrongAnswer(
            "That is the distance. Compare with the notebook's rewards: they are below 0, and -4 at a distance of 2."
        )
    if gives(-((x + y) ** 2) for x, y in points):
        raise WrongAnswer("(dx + dy)² is not dx² + dy²: with dx = 0.3 and dy = -0.4, the two nearly cancel out.")
    if gives(-d / 2 for d in squared):
        raise WrongAnswer("Half of it. Both agents get the whole reward; it is not divided.")
    if not close(rewards[0], 0, 1e-4):
        raise WrongAnswer(f"At the goal itself, dx = dy = 0, the environment pays 0; yours {rewards[0]:.4g}.")
    compare = "Compare with the rewards in the notebook: where the goal is 0.5 away it is -0.25, and 2 away -4."
    if gives(-(d**0.5) for d in squared):
        raise WrongAnswer(f"That is minus the distance. {compare}")
    if gives(-(d**0.5) / 2 for d in squared):
        raise WrongAnswer(f"Half the distance fits one of the rewards only. {compare}")
    if gives(-(abs(x) + abs(y)) for x, y in points):
        raise WrongAnswer("That adds up the two distances. Use the straight line (Pythagoras).")
    (x, y), paid, mine = next(case for case in zip(points, squared, rewards) if not close(case[2], -case[1], 1e-4))
    raise WrongAnswer(f"For dx = {x:g}, dy = {y:g} the environment pays {-paid:g}; yours {round(mine, 4):g}.")
