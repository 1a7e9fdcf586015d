"""An experiment prints what differs from its defaults; objects print their shape, not their numbers."""

from __future__ import annotations

import html
import re

import numpy as np

from marlnb.experiment import Experiment
from marlnb.models.hooks.directions import Direction

ROW = r"<tr><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td></tr>"
MANY = (
    *("env=mpe/simple_tag", "env.max_cycles=50", "algorithm=ippo", "algorithms.agent=mappo", "models.adversary=gru"),
    *("frames=2_000_000", "seed=3", "n_envs=64", "rollout_steps=128", "evaluate_every=10", "evaluation_episodes=1000"),
    *("checkpoint_every=5", "keep_checkpoints=0", "threads=2", "target_return=-8.3", "target_group=agent"),
    *("algorithm.lr=1e-4", "algorithm.epochs=3", "loggers=[tensorboard]"),
)


def test_an_experiment_prints_what_was_set_in_at_most_three_lines() -> None:
    words = ("env=mpe/simple_spread", "algorithm.lr=0.001", "frames=6400")
    lines = repr(Experiment.compose(*words, "tuned=false")).splitlines()
    assert lines == [
        "Experiment: env=mpe/simple_spread algorithm.lr=0.001 frames=6400 tuned=false",
        "  mappo with mlp, 6,400 frames in 4 iterations of 32 environments × 64 steps, seed 0",
        "  untuned: tuned=false, all other options have their defaults",
    ]
    lines = repr(Experiment.compose(*words)).splitlines()
    assert lines[0] == "Experiment: env=mpe/simple_spread algorithm.lr=0.001 frames=6400" and len(lines) == 3
    assert lines[2].startswith("  tuned for mpe/simple_spread, found by ")
    assert max(map(len, lines)) < 140
    lines = repr(Experiment.compose("env=pettingzoo/multiwalker", "algorithm=iql")).splitlines()
    assert lines[2] == "  untuned: no tuned settings for iql on pettingzoo/multiwalker"
    lines = repr(Experiment.compose(*words, "evolution=pbt", "tuned=false")).splitlines()  # evaluations take frames too
    assert "6,400 frames with evaluations, in at most 4 iterations of 32 environments" in lines[1]
    lines = repr(Experiment.compose(*MANY, "tuned=false")).splitlines()
    assert len(lines) == 3 and max(map(len, lines)) <= 160 and re.search(r" and \d+ more$", lines[1])
    assert lines[0].startswith("Experiment: env=mpe/simple_tag env.max_cycles=50 algorithm=ippo algorithm.lr=0.0001")


def test_a_notebook_shows_the_differences_next_to_their_defaults_and_everything_folded() -> None:
    page = Experiment.compose(*MANY, "tuned=false")._repr_html_()
    rows = re.findall(ROW, page)
    shown = {key: (value, default) for key, value, default in rows}
    assert shown["env.max_cycles"] == ("50", "25") and shown["frames"] == ("2_000_000", "1_000_000")
    assert shown["algorithms.agent"] == ("mappo", "as algorithm") and shown["target_return"] == ("-8.3", "null")
    assert "critic" not in shown and len(rows) == 20
    assert "<details><summary>all options</summary><pre>" in page and "&#34;critic" in page
    assert "background" not in page
    page = Experiment.compose("env=mpe/simple_spread", "algorithm=ippo", "algorithm.gamma=0.8")._repr_html_()
    shown = {key: (value, default) for key, value, default in re.findall(ROW, page)}
    assert "found by" in page and shown["n_envs"] == ("256", "32") and shown["algorithm.gamma"] == ("0.8", "0.9")


def test_a_direction_prints_its_shape_and_largest_weights() -> None:
    vector = np.zeros(64)
    vector[[3, 17]] = 0.8, -0.6
    direction = Direction("listener/actor/hidden_1", "listener_0", tuple(vector), 0.25, 1.5, "goal = <red>")
    assert repr(direction) == (
        "<Direction of goal = <red>: 64 units of listener_0 at listener/actor/hidden_1, mean 0.25, standard deviation "
        "1.5, largest weights unit 3 +0.80, unit 17 -0.60>"
    )
    page = direction._repr_html_()
    assert html.escape("goal = <red>", quote=False) in page and "unit 3 +0.80, unit 17 -0.60" in page
    assert len(repr(direction.erase())) < 350
