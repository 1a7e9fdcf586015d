"""Restored episodes of causal tracing, where episodes differ in length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from marlnb.analysis.interventions.tracing_rollouts import Restore, Rollouts
from marlnb.models.hooks.edits import Noise
from marlnb.training.runs.run import Run

SPREAD = Path(__file__).parents[3] / "data" / "spread"
SITE = "agent/actor/hidden_2"


def test_nothing_is_restored_after_the_end_of_an_envs_clean_episode() -> None:
    """A window after an env's clean episode leaves its score as it is; one from the start on does not."""
    run = Run.open(SPREAD)
    env = replace(run.experiment.env, terminate_on_success=True)  # type: ignore[call-arg]
    corruption = Noise("agent/observation", scale=0.6)
    with env.build(64) as built:
        rollouts = Rollouts(built, run.policies(), 1000, "return", ["agent"], {SITE})
        activations, in_episode = rollouts.clean_activations(SITE), rollouts.clean.in_episode
        corrupted, length = rollouts.score([corruption]), in_episode.sum(0).numpy()

        def restored(start: int) -> np.ndarray:
            window = (start, start + 5)
            return rollouts.score([corruption, Restore(SITE, activations, in_episode, agents=("agent_0",), t=window)])

        changed = np.array([restored(start) != corrupted for start in (0, 10, 15, 20)])
    starts = np.array([0, 10, 15, 20])[:, None]
    assert len(set(length.tolist())) > 3 and (starts >= length).sum() > 20
    assert not changed[starts >= length].any() and changed[0].any() and changed[2].any()
