"""The checks: what is trained, for how long, and what it must reach."""

from __future__ import annotations

from dataclasses import dataclass

from marlnb.analysis.marl_eval import RETURN

PPO = ("n_envs=128", "rollout_steps=25", "algorithm.lr=1e-3", "algorithm.entropy_coef=0.01",
       "algorithm.minibatch_frames=1600", "algorithm.epochs=5", "algorithm.gamma=0.95")  # fmt: skip
OFF_POLICY = ("n_envs=32", "rollout_steps=25")  # to be tuned


@dataclass(frozen=True)
class Check:
    """One training with a target.

    Attributes:
        overrides: in Hydra's grammar, as `marlnb train` takes them, but for the seed.
        target: the median over seeds of the mean return must be at least this, in units of reward; None where it is
            not known yet: the check then only measures.
        metric: whose return: `return` (the mean over groups) or `<group>_return`.
        source: where the target comes from.
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
        "calibration ladder, within 4M frames; random -26.4, scripted oracle -7.67",
    ),
    Check(
        "maddpg-speaker-listener",
        ("env=mpe/simple_speaker_listener", "algorithm=maddpg", *OFF_POLICY, "frames=1_000_000"),
        -10.0,
        "calibration ladder; no communication -15.37, scripted oracle -7.46",
    ),
    Check(
        "matd3-speaker-listener",
        ("env=mpe/simple_speaker_listener", "algorithm=matd3", *OFF_POLICY, "frames=1_000_000"),
        -10.0,
        "calibration ladder; no communication -15.37, scripted oracle -7.46",
    ),
    Check(
        "mixture-tag",
        (
            *("env=mpe/simple_tag", "algorithms.adversary=mappo", "algorithms.agent=iql"),
            *("n_envs=128", "rollout_steps=25", "algorithms.adversary.lr=1e-3", "frames=2_000_000"),
        ),
        15.0,
        "calibration ladder: adversaries trained by MAPPO against runners trained by IQL",
        metric="adversary_return",
    ),
    Check(
        "ippo-balance",
        ("env=vmas/balance", "algorithm=ippo", *PPO, "frames=2_000_000"),
        None,
        "to be set from BenchMARL's IPPO on the same frames",
    ),
    Check(
        "ippo-multiwalker",
        ("env=pettingzoo/multiwalker", "algorithm=ippo", "n_envs=8", "rollout_steps=250", "frames=2_000_000"),
        None,
        "to be set from BenchMARL's IPPO on the same frames",
    ),
)


def choose(words: list[str]) -> list[Check]:
    """The checks whose names hold any of the words; all where there is none.

    Raises:
        ValueError: a word that is in no name, with the names.
    """
    for word in words:
        if not any(word in check.name for check in CHECKS):
            raise ValueError(f"no check has {word!r} in its name: {', '.join(check.name for check in CHECKS)}")
    return [check for check in CHECKS if not words or any(word in check.name for word in words)]
