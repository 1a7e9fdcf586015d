"""The worked example of a batched environment: the contract, the page that shows it, and training by command."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

import marlnb as mnb
from marlnb.cli import main
from tests.examples.batched_environment import Chase

ROOT = Path(__file__).parents[2]


def test_example_passes_the_contract() -> None:
    mnb.check_vector_env(Chase(n_seekers=2, max_steps=8).build)


def test_page_shows_the_tested_code() -> None:
    page = (ROOT / "docs" / "environments-batched.md").read_text()
    (block,) = re.findall(r"```python\n# chase.py\n(.*?)```\n", page, re.DOTALL)
    code = (ROOT / "tests/examples/batched_environment.py").read_text()
    code = code.replace("from __future__ import annotations\n\n", "").replace("examples/chase", "my/chase")
    assert block == code, "the page shows another version"
    assert len(block.splitlines()) < 60


def test_a_catch_pays_the_seekers_and_ends_the_episode() -> None:
    """Two seekers, the second 0.16 left of the hider: one step to the right leaves 0.11, another 0.06."""
    env = Chase(n_seekers=2).build(1)
    env.reset(0)
    env.state["position"] = torch.tensor([[[0.9, 0.9], [0.34, 0.5], [0.5, 0.5]]])
    actions = {"seeker": torch.tensor([[0, 2]]), "hider": torch.tensor([[0]])}
    step = env.step(actions)
    assert not step.done and step.groups["hider"].reward.tolist() == [[1.0]]
    step = env.step(actions)
    assert (
        step.done and step.groups["seeker"].terminated.all() and step.groups["seeker"].reward.tolist() == [[5.0, 5.0]]
    )
    torch.testing.assert_close(step.groups["seeker"].final_observation[0, 1], torch.tensor([0.44, 0.5, 0.5, 0.5]))


def test_picture_shows_each_agent_in_its_place() -> None:
    env = Chase(n_seekers=1).build(2)
    env.reset(0)
    env.state["position"][1] = torch.tensor([[0.25, 0.25], [0.75, 0.5]])
    picture = env.render(1)
    seeker, hider = np.array([0xD5, 0x5E, 0x00]), np.array([0x00, 0x72, 0xB2])
    assert (picture[299, 100] == seeker).all() and (picture[200, 299] == hider).all()  # row 299 is low: y is upwards


def test_trains_by_command_from_an_import_path(tmp_path: Path) -> None:
    options = [
        "env.n_seekers=2",
        "algorithm=ippo",
        "algorithms.hider=random",
        "n_envs=4",
        "frames=64",
        "rollout_steps=8",
    ]
    run = tmp_path / "run"
    assert main(["train", "env=tests.examples.batched_environment:Chase", *options, "--quiet", f"run={run}"]) == 0
    evaluation = mnb.evaluate(run, episodes=3)
    assert set(evaluation.return_mean) == {"seeker", "hider"}
