"""Images end to end: from the screen of a game to convolutions that learn and are recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from marlnb.experiment import Experiment
from marlnb.recording.capture.recorder import record
from marlnb.training.train import train

pytest.importorskip("pygame")


def test_paddles_learn_from_what_they_see(tmp_path: Path) -> None:
    experiment = Experiment.compose(
        *("env=pettingzoo/cooperative_pong", "env.workers=0", "env.max_steps=4", "algorithm=mappo"),
        *("algorithm.epochs=1", "model=cnn", "model.channels=[4,8]", "model.kernels=[16,6]", "model.strides=[12,4]"),
        *("model.hidden=[16]", "n_envs=1", "rollout_steps=6", "frames=12", "threads=1"),
    )
    run = train(experiment, tmp_path / "pong", progress=False)
    norms = run.metrics()["learning/paddle/grad_norm_actor"]
    assert len(norms) == 2 and (norms > 0).all()
    with record(run, episodes=1, sites="*", values=True, progress=False) as recording:
        frames = recording.steps("paddle", "observation").to_torch()
        assert frames.shape == (4, 2, 280, 480, 3) and frames.dtype == torch.uint8
        policy = run.policies()["paddle"]
        conv = policy.actor.network.trunks[0].convs[0]  # type: ignore[attr-defined]
        image = frames[:, 1].float().permute(0, 3, 1, 2) / 255
        maps = torch.relu(torch.nn.functional.conv2d(image, conv.weight, conv.bias, stride=12))
        recorded = recording["paddle/actor/conv_1"].sel(agent=recording.agents[1]).to_torch()
        torch.testing.assert_close(recorded, maps.permute(0, 2, 3, 1).flatten(1).detach(), atol=1e-5, rtol=1e-4)
        assert recording["paddle/critic/conv_1"].shape == (4, 2, 2 * conv.units)
