"""The tasks of the search: for each environment and algorithm a start, and other values for its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.tune.halving import Rung, SearchTask

HALVING = (Rung(20, 4, (0,)), Rung(60, 2, (1, 2)))
SHORT = (Rung(20, 3, (0,)), Rung(20, 2, (0, 1)))  # with `--short`: a third of the time, the worst of two seeds
COMPARISON = (Rung(10, 2, (0,)),)  # the start, and the options' own defaults
CAREFUL_RUNGS = (Rung(60, 3, (0,)), Rung(60, 2, (0, 1, 2)))  # where the first 20 seconds are misleading
SLOW = (Rung(60, 2, (0,)), Rung(60, 1, (0, 1)))  # where a frame is expensive
SLOW_MARKS_S = (60.0, 300.0)  # and so is a scoring

Values = Mapping[str, str]
Space = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Guess:
    """A start, values to try, and changes of the start to try first."""

    start: Values
    space: Space
    alternatives: tuple[Values, ...] = ()


PPO = Guess(
    {
        "n_envs": "256",
        "rollout_steps": "25",
        "model.hidden": "[64,64]",
        "algorithm.lr": "3e-3",
        "algorithm.gamma": "0.9",
        "algorithm.gae_lambda": "0.95",
        "algorithm.epochs": "3",
        "algorithm.minibatch_frames": "800",
        "algorithm.entropy_coef": "0.01",
    },
    {
        "n_envs": ("128", "256"),
        "algorithm.lr": ("1e-3", "2e-3", "3e-3"),
        "algorithm.gamma": ("0.85", "0.9", "0.95"),
        "algorithm.gae_lambda": ("0.9", "0.95"),
        "algorithm.epochs": ("2", "3", "5"),
        "algorithm.minibatch_frames": ("400", "800", "1600"),
        "algorithm.entropy_coef": ("0.003", "0.01", "0.02"),
    },
    ({"algorithm.gae_lambda": "0.9"}, {"algorithm.minibatch_frames": "400", "algorithm.epochs": "2"}),
)
# An update of small networks costs about as much with 256 frames as with 512, and stepping the worlds costs little.
OFF_POLICY_VALUES: Values = {
    "n_envs": "256",
    "rollout_steps": "25",
    "model.hidden": "[64,64]",
    "model.activation": "relu",
    "algorithm.gamma": "0.9",
    "algorithm.lr": "3e-3",
    "algorithm.tau": "0.02",
    "algorithm.batch_size": "512",
    "algorithm.updates": "24",
    "algorithm.learning_starts": "3200",
    "algorithm.buffer_frames": "400_000",
}
_OFF_POLICY_SPACE: Space = {
    "n_envs": ("64", "128", "256"),
    "algorithm.gamma": ("0.85", "0.9", "0.95"),
    "algorithm.lr": ("1e-3", "2e-3", "3e-3"),
    "algorithm.tau": ("0.01", "0.02", "0.04"),
    "algorithm.batch_size": ("256", "512", "1024"),
}
DDPG = Guess(
    {**OFF_POLICY_VALUES, "algorithm.policy_actions": "all"},
    {**_OFF_POLICY_SPACE, "algorithm.policy_actions": ("own", "all")},
    ({"algorithm.batch_size": "1024", "algorithm.tau": "0.04"}, {"algorithm.policy_actions": "own"}),
)
Q_LEARNING = Guess(
    {
        **OFF_POLICY_VALUES,
        "n_envs": "128",
        "algorithm.gamma": "0.85",
        "algorithm.lr": "2e-3",
        "algorithm.tau": "0.04",
        "algorithm.batch_size": "256",
        "algorithm.epsilon_frames": "100_000",
    },
    {**_OFF_POLICY_SPACE, "algorithm.epsilon_frames": ("50_000", "100_000", "200_000")},
    ({"algorithm.batch_size": "512"}, {"algorithm.double": "false"}),
)
SAC = Guess(
    {**OFF_POLICY_VALUES, "algorithm.temperature": "0.05", "algorithm.target_entropy": "0.3"},
    {
        **_OFF_POLICY_SPACE,
        "algorithm.temperature": ("0.02", "0.05", "0.1"),
        "algorithm.target_entropy": ("0.1", "0.3", "0.6"),
    },
    ({"algorithm.target_entropy": "0.1"}, {"algorithm.batch_size": "256", "algorithm.target_entropy": "0.1"}),
)
GUESSES = {"ippo": PPO, "mappo": PPO, "maddpg": DDPG, "masac": SAC, "qmix": Q_LEARNING, "vdn": Q_LEARNING}
OFF_POLICY_ALGORITHMS = ("maddpg", "masac", "qmix", "vdn")

GAME = Guess(
    {
        "n_envs": "64",
        "rollout_steps": "64",
        "model.hidden": "[128,128]",
        "model.activation": "relu",
        "algorithm.lr": "1e-3",
        "algorithm.gamma": "1.0",
        "algorithm.gae_lambda": "0.8",
        "algorithm.epochs": "4",
        "algorithm.minibatch_frames": "1024",
        "algorithm.entropy_coef": "0.03",
    },
    {
        "n_envs": ("32", "64"),
        "algorithm.lr": ("1e-3", "2e-3", "3e-3"),
        "algorithm.gamma": ("0.97", "1.0"),
        "algorithm.gae_lambda": ("0.8", "0.9"),
        "algorithm.epochs": ("4", "8"),
        "algorithm.minibatch_frames": ("512", "1024"),
        "algorithm.entropy_coef": ("0.03", "0.05", "0.1"),
    },
)
LONG_GAME: Values = {  # less exploration, and self-play meets ever fewer positions (docs/tuning-experiments.md)
    "algorithm.epochs": "6",
    "algorithm.minibatch_frames": "512",
    "algorithm.entropy_coef": "0.1",
}
# PettingZoo's physics take longer than a step of learning with small networks, so a frame is used more often.
WALKERS = Guess(
    {
        "n_envs": "8",
        "rollout_steps": "128",
        "model.hidden": "[64,64]",
        "algorithm.lr": "1e-3",
        "algorithm.gamma": "0.98",
        "algorithm.gae_lambda": "0.95",
        "algorithm.epochs": "10",
        "algorithm.minibatch_frames": "128",
        "algorithm.initial_log_std": "-0.7",
    },
    {
        "algorithm.lr": ("5e-4", "1e-3"),
        "algorithm.gamma": ("0.97", "0.98", "0.99"),
        "algorithm.gae_lambda": ("0.9", "0.95"),
        "algorithm.epochs": ("5", "10"),
        "algorithm.initial_log_std": ("-1.0", "-0.7", "-0.3"),
    },
    (
        {"algorithm.lr": "5e-4"},
        {"algorithm.initial_log_std": "-1.0", "algorithm.gae_lambda": "0.9"},
        {"algorithm.minibatch_frames": "256", "algorithm.epochs": "5"},
    ),
)
KNIGHTS = Guess(
    {
        "n_envs": "8",
        "rollout_steps": "128",
        "model.hidden": "[64,64]",
        "model.layer_norm": "true",
        "algorithm.lr": "1e-3",
        "algorithm.gamma": "0.99",
        "algorithm.gae_lambda": "0.95",
        "algorithm.epochs": "5",
        "algorithm.minibatch_frames": "256",
        "algorithm.entropy_coef": "0.0",
    },
    {
        "model.layer_norm": ("true", "false"),
        "algorithm.lr": ("5e-4", "1e-3"),
        "algorithm.gae_lambda": ("0.95", "0.98"),
        "algorithm.epochs": ("5", "10"),
        "algorithm.entropy_coef": ("0.0", "0.01", "0.03"),
    },
    (
        {"algorithm.epochs": "10", "algorithm.minibatch_frames": "512", "algorithm.entropy_coef": "0.01"},
        {"algorithm.gae_lambda": "0.98"},
        {"model.layer_norm": "false"},
    ),
)
PISTONS = Guess(  # a frame has 20 images of 457 x 120 pixels
    {
        "env.pixel_stride": "8",
        "model.channels": "[8,16]",
        "model.kernels": "[5,3]",
        "model.strides": "[3,2]",
        "model.hidden": "[64]",
        "n_envs": "8",
        "rollout_steps": "32",
        "algorithm.lr": "2e-3",
        "algorithm.gamma": "0.9",
        "algorithm.gae_lambda": "0.95",
        "algorithm.epochs": "6",
        "algorithm.minibatch_frames": "64",
        "algorithm.initial_log_std": "0.0",
    },
    {
        "algorithm.lr": ("1e-3", "2e-3"),
        "algorithm.gamma": ("0.9", "0.95", "0.98"),
        "algorithm.epochs": ("3", "6"),
        "algorithm.initial_log_std": ("-0.5", "0.0"),
    },
    (
        {"algorithm.lr": "1e-3"},
        {"algorithm.epochs": "3"},
        {"algorithm.gamma": "0.98", "algorithm.epochs": "3", "algorithm.lr": "1e-3"},
    ),
)
BATCHED = Guess(
    {
        "n_envs": "256",
        "rollout_steps": "100",
        "algorithm.lr": "1e-3",
        "algorithm.gamma": "0.97",
        "algorithm.epochs": "5",
        "algorithm.minibatch_frames": "3200",
        "algorithm.entropy_coef": "0.001",
    },
    {
        "n_envs": ("128", "256"),
        "algorithm.lr": ("1e-3", "2e-3"),
        "algorithm.gamma": ("0.95", "0.97", "0.99"),
        "algorithm.epochs": ("5", "10"),
        "algorithm.minibatch_frames": ("1600", "3200"),
    },
)
NAVIGATION = Guess(
    {
        **BATCHED.start,
        "n_envs": "128",
        "rollout_steps": "25",
        "model.hidden": "[128,128]",
        "algorithm.gamma": "0.95",
        "algorithm.gae_lambda": "0.9",
        "algorithm.minibatch_frames": "800",
    },
    BATCHED.space,
    (
        {"algorithm.gamma": "0.9"},
        {"algorithm.lr": "2e-3", "algorithm.minibatch_frames": "400"},
        {"n_envs": "256", "rollout_steps": "50", "algorithm.minibatch_frames": "1600"},
    ),
)

CAREFUL_ALTERNATIVES: tuple[Values, ...] = (  # words are learned by chance
    {"algorithm.lr": "2e-3", "algorithm.gae_lambda": "0.9", "algorithm.epochs": "5"},
    {"algorithm.entropy_coef": "0.02"},
)
_FRESH: Values = {"algorithm.buffer_frames": "100_000"}  # what others did long ago misleads agents that learn together
_LARGE: Values = {"algorithm.batch_size": "1024"}
_SLOW_ACTOR: Values = {**_FRESH, "algorithm.lr": "1e-3", "algorithm.lr_critic": "3e-3"}
STARTS: Mapping[str, Values] = {  # in place of the values of the guess; found by frames (docs/tuning-experiments.md)
    "simple_speaker_listener mappo": {"algorithm.entropy_coef": "0.05"},
    "simple_speaker_listener maddpg": {
        "algorithm.gamma": "0.85",
        "algorithm.tau": "0.04",
        "algorithm.output_penalty": "0.01",
    },
    "simple_tag ippo": {"algorithm.gamma": "0.98"},
    "simple_tag maddpg": {"algorithm.gamma": "0.98", "algorithm.tau": "0.04"},
    "simple_tag masac": {"algorithm.gamma": "0.98", "algorithm.tau": "0.04"},
    "simple_tag vdn": {"algorithm.gamma": "0.95"},
}
ALTERNATIVES: Mapping[str, tuple[Values, ...]] = {
    "simple_tag": ({"algorithm.gamma": "0.95"}, {"algorithm.gamma": "0.98"}),  # a hunt takes long
    "simple_tag ippo": ({"algorithm.minibatch_frames": "1600"}, {"algorithm.gae_lambda": "0.9"}),
    "simple_tag maddpg": (_FRESH, {**_LARGE, **_FRESH}, {"algorithm.policy_actions": "own"}),
    "simple_tag masac": (_SLOW_ACTOR, _FRESH, {**_LARGE, **_FRESH}, {"algorithm.target_entropy": "0.6"}),
    "simple_tag vdn": ({"algorithm.gamma": "0.98"}, _FRESH),
    "simple_reference mappo": CAREFUL_ALTERNATIVES,
    "simple_speaker_listener mappo": (
        {"algorithm.entropy_coef": "0.03", "algorithm.gae_lambda": "0.9"},
        {"algorithm.entropy_coef": "0.03", "algorithm.minibatch_frames": "1600", "algorithm.epochs": "5"},
    ),
    "simple_speaker_listener maddpg": (
        _FRESH,
        _LARGE,
        {**_LARGE, **_FRESH},
        {**_LARGE, "algorithm.output_penalty": "0.02"},
    ),
}

# those with a target; the other tasks only compare the start with the defaults
SEARCHED = (
    *(("simple_spread", name) for name in ("mappo", "maddpg", "qmix")),
    *(("simple_speaker_listener", name) for name in ("mappo", "maddpg")),
    *(("simple_reference", name) for name in ("mappo", "masac")),
    *(("simple_tag", name) for name in ("ippo", "maddpg", "masac", "qmix", "vdn")),
)
MPE_TASKS = (
    *("simple_spread", "simple_speaker_listener", "simple_reference", "simple_tag", "simple_adversary"),
    *("simple_push", "simple_world_comm", "simple_crypto", "simple"),
)


def _mpe(task: str, algorithm: str) -> SearchTask:
    name, guess, searched = f"{task} {algorithm}", GUESSES[algorithm], (task, algorithm) in SEARCHED
    fixed = (*in_one_thread("mpe/"), *(("algorithm.save_replay=false",) if algorithm in OFF_POLICY_ALGORITHMS else ()))
    if not searched:
        return SearchTask(f"mpe/{task}", algorithm, guess.start, {}, COMPARISON, fixed)
    of_task = ALTERNATIVES.get(task, guess.alternatives)
    start, rungs = {**guess.start, **STARTS.get(name, {})}, CAREFUL_RUNGS if name in STARTS else HALVING
    return SearchTask(f"mpe/{task}", algorithm, start, guess.space, rungs, fixed, ALTERNATIVES.get(name, of_task))


def in_one_thread(env: str) -> tuple[str, ...]:
    """Overrides with which a training run uses one thread, and steps PettingZoo's environments in its own process."""
    return ("threads=1", *(("env.workers=0",) if env.startswith("pettingzoo/") else ()))


def _other(env: str, guess: Guess, rungs: tuple[Rung, ...], *fixed: str, **options: Any) -> SearchTask:
    fixed = (*in_one_thread(env), *fixed)
    return SearchTask(env, "ippo", guess.start, guess.space, rungs, fixed, guess.alternatives, **options)


SEARCH_TASKS = (
    *(_mpe(*pair) for pair in SEARCHED),
    _other("pettingzoo/connect_four", Guess({**GAME.start, **LONG_GAME}, GAME.space), HALVING),
    *(_mpe(task, name) for task in MPE_TASKS for name in GUESSES if (task, name) not in SEARCHED),
    _other("pettingzoo/tictactoe", Guess({**GAME.start, **LONG_GAME}, {}), COMPARISON),
    _other("vmas/balance", BATCHED, HALVING, episodes=100),
    _other("vmas/navigation", NAVIGATION, HALVING, episodes=100),
    _other("pettingzoo/multiwalker", WALKERS, SLOW, episodes=40, marks_s=SLOW_MARKS_S),
    _other("pettingzoo/knights_archers_zombies", KNIGHTS, SLOW, episodes=24, marks_s=SLOW_MARKS_S),
    _other("pettingzoo/pistonball", PISTONS, SLOW, "model=cnn", episodes=16, marks_s=SLOW_MARKS_S),
)


def choose(words: Sequence[str]) -> list[SearchTask]:
    """The tasks whose names contain all words up to a comma, or all of those after it; all tasks without words.

    Raises:
        ValueError: such words have no task; the message lists the names.
    """
    chosen: dict[str, SearchTask] = {}
    for part in " ".join(words).split(","):
        fitting = [task for task in SEARCH_TASKS if all(word in task.name for word in part.split())]
        if not fitting:
            names = ", ".join(task.name for task in SEARCH_TASKS)
            raise ValueError(f"no task has all of {part.split()} in its name; tasks: {names}")
        chosen |= {task.name: task for task in fitting}
    return list(chosen.values())
