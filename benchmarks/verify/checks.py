"""The checks: each training run, its length and its target."""

from __future__ import annotations

from dataclasses import dataclass

from marlnb.analysis.benchmarking.marl_eval import RETURN

PPO = ("tuned=false", "n_envs=128", "rollout_steps=25", "algorithm.lr=1e-3", "algorithm.entropy_coef=0.01",
       "algorithm.minibatch_frames=1600", "algorithm.epochs=5", "algorithm.gamma=0.95")  # fmt: skip
OFF_POLICY = ("tuned=false", "n_envs=64", "rollout_steps=25", "model.hidden=[64,64]", "model.activation=relu",
              "algorithm.gamma=0.9", "algorithm.lr=2e-3", "algorithm.tau=0.02", "algorithm.batch_size=256",
              "algorithm.updates=24", "algorithm.learning_starts=3200", "algorithm.buffer_frames=400_000")  # fmt: skip
ADVERSARIES = ("lr=1e-3", "entropy_coef=0.01", "gamma=0.95", "minibatch_frames=400", "epochs=5")
BATCHED_PPO = ("tuned=false", "n_envs=256", "rollout_steps=100", "algorithm.lr=1e-3", "algorithm.minibatch_frames=3200",
               "algorithm.epochs=5", "algorithm.gamma=0.97", "algorithm.entropy_coef=0.001")  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One training run with a target.

    Attributes:
        overrides: in Hydra's grammar, as `marlnb train` takes them, but for the seed.
        target: a lower bound on the median over seeds of the mean return, in units of reward; None where it is not
            known yet: the check then only measures.
        metric: the return to compare: `return` (the mean over groups) or `<group>_return`.
        source: of the target.
    """

    name: str
    overrides: tuple[str, ...]
    target: float | None
    source: str
    metric: str = RETURN
    seeds: tuple[int, ...] = (0, 1, 2)


CHECKS = (
    Check(
        "ippo-spread",
        ("env=mpe/simple_spread", "algorithm=ippo", *PPO, "frames=1_000_000"),
        -18.5,
        "within 4M frames; random -26.4, scripted oracle -7.67",
    ),
    Check(
        "maddpg-speaker-listener",
        ("env=mpe/simple_speaker_listener", "algorithm=maddpg", *OFF_POLICY, "frames=480_000"),
        -10.0,
        "no communication -15.37, scripted oracle -7.46",
    ),
    Check(
        "matd3-speaker-listener",
        (
            *("env=mpe/simple_speaker_listener", "env.continuous_actions=true", "algorithm=matd3", *OFF_POLICY),
            *("algorithm.actor_every=1", "frames=480_000"),
        ),
        -10.0,
        "continuous actions; random -38.5, scripted oracle -6.1",
    ),
    Check(
        "mixture-tag",
        (
            *("env=mpe/simple_tag", "algorithms.adversary=mappo", "algorithms.agent=iql"),
            *(f"algorithms.adversary.{word}" for word in ADVERSARIES),
            *("algorithms.agent.updates=24", "algorithms.agent.gamma=0.95"),
            *("tuned=false", "n_envs=64", "rollout_steps=25", "frames=600_000"),
        ),
        15.0,
        "adversaries trained by MAPPO against runners trained by IQL",
        metric="adversary_return",
    ),
    Check(
        "ippo-balance",
        ("env=vmas/balance", "algorithm=ippo", *BATCHED_PPO, "frames=819_200"),
        12.1,
        "the scenario's own heuristic; random -9.9",
    ),
    Check(
        "ippo-multiwalker",
        (
            *("env=pettingzoo/multiwalker", "algorithm=ippo", "tuned=false"),
            *("n_envs=8", "rollout_steps=250", "frames=2_000_000"),
        ),
        None,
        "to be set from BenchMARL's IPPO on the same frames",
    ),
)


def choose(words: list[str]) -> list[Check]:
    """The checks whose names contain any of the words; all checks without words.

    Raises:
        ValueError: a word is in no name; the message lists the names.
    """
    for word in words:
        if not any(word in check.name for check in CHECKS):
            raise ValueError(f"no check has {word!r} in its name: {', '.join(check.name for check in CHECKS)}")
    return [check for check in CHECKS if not words or any(word in check.name for word in words)]
