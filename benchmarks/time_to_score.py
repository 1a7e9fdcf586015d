"""Time to learn to communicate: seconds and frames until MAPPO reaches a mean return on simple_speaker_listener.

    python -m benchmarks.time_to_score [--seeds 0 1 2] [--target -8.2] [--frames 3000000] [--threads 2]

Random actions score -39.8 per agent, the best policy with a silent speaker -15.4, a scripted oracle -7.5. The target is
reached when the mean over at least the last hundred training episodes, exploration included, reaches it; each trained
policy is then evaluated without exploration over 300 episodes. `EXPERIMENT` is the training of the quickstart.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.table import Row, report
from marlnb.experiment import Experiment
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.train import train

EXPERIMENT = (
    "env=mpe/simple_speaker_listener",
    "algorithm=mappo",
    "tuned=false",
    "n_envs=256",
    "rollout_steps=25",
    "algorithm.minibatch_frames=1600",
    "algorithm.epochs=5",
    "algorithm.lr=2e-3",
    "algorithm.entropy_coef=0.01",
    "algorithm.gamma=0.9",
)
HAND_WRITTEN_S = 69.0


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--target", type=float, default=-8.2, help="mean return per agent")
    parser.add_argument("--frames", type=int, default=3_000_000, help="give up after this number")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args(argv)
    seconds, frames, scores, reached = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            limits = (f"target_return={arguments.target}", f"frames={arguments.frames}", f"threads={arguments.threads}")
            experiment = Experiment.compose(*EXPERIMENT, *limits, f"seed={seed}", "checkpoint_every=200")
            run = train(experiment, Path(folder) / str(seed))
            last = run.metrics().iloc[-1]
            seconds.append(float(last["seconds"]))
            frames.append(float(last["frames"]))
            reached.append(bool(last["recent_return"] >= arguments.target))
            scores.append(evaluate(run, episodes=300).score)
    rows = [
        Row(f"time to {arguments.target}", tuple(seconds), "s", target=HAND_WRITTEN_S, at_most=True),
        Row("frames", tuple(frames), "frames"),
        Row("score then, 300 episodes", tuple(scores), "return", target=-9.0),
    ]
    title = f"Time to {arguments.target} on simple_speaker_listener, {arguments.threads} threads"
    report("time_to_score", title, rows, experiment=EXPERIMENT, seeds=arguments.seeds, reached=reached)
    if not all(reached):
        failed = [seed for seed, done in zip(arguments.seeds, reached) if not done]
        raise SystemExit(f"seeds {failed} did not reach {arguments.target} in {arguments.frames} frames")


if __name__ == "__main__":
    main()
