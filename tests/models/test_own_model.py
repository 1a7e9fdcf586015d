"""The network of one's own that the documentation shows, as a file that is imported."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from marlnb.config import MODELS
from marlnb.experiment import Experiment
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.edits import Ablate
from marlnb.training.learners import build_learners
from marlnb.training.train import train

PAGE = Path(__file__).parents[2] / "docs" / "networks-and-sites.md"


@pytest.fixture(scope="module")
def own_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The page's own file, imported as a user would; forgotten afterwards."""
    section = PAGE.read_text().split("## Your own network")[1]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    path = tmp_path_factory.mktemp("own") / "residual_of_the_docs.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    yield
    del sys.modules[path.stem], MODELS._members["residual"]


@pytest.mark.parametrize("share", ["true", "false"])
def test_it_is_a_model_like_any_other(own_model: None, share: str) -> None:
    experiment = Experiment.compose(
        "env=mpe/simple_spread", "model=residual", "model.width=8", f"model.share_parameters={share}"
    )
    assert Experiment.from_json(json.loads(json.dumps(experiment.to_json()))) == experiment
    with experiment.env.build(1) as env:
        policy = build_learners(experiment, env.spec)["agent"].policy
    observation = torch.randn(4, 3, 18)
    with capture(policy, "*/actor/*") as activations:
        before = policy.act(observation, explore=False).logits
    stem, block = activations["agent/actor/stem"], activations["agent/actor/block"]
    assert torch.equal(activations["agent/actor/stream"], stem + block) and stem.shape == (4, 3, 8)
    with edited(policy, [Ablate("agent/actor/stream", agents=("agent_1",))]):
        after = policy.act(observation, explore=False).logits
    assert (after != before).flatten(2).any(-1).any(0).tolist() == [False, True, False]


def test_it_learns(own_model: None, tmp_path: Path) -> None:
    run = train(
        Experiment.compose(
            *("env=mpe/simple_spread", "algorithm=ippo", "model=sequence", "model.models=[residual,gru]"),
            *("algorithm.sequence_length=5", "n_envs=2", "rollout_steps=5", "frames=10", "threads=1"),
        ),
        tmp_path / "run",
        progress=False,
    )
    assert "agent/actor/residual/stream" in [site.name for site in run.policies()["agent"].sites()]
    assert run.metrics()["learning/agent/grad_norm_actor"].iloc[0] > 0
