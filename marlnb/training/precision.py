"""Whether a training's precision suits its processor."""

from __future__ import annotations

import torch

from marlnb.display.notice import print_notice
from marlnb.experiment import Experiment
from marlnb.models.networks.low_precision import bfloat16_speed

SLOWER = 0.9  # times the speed of float32; a measurement of milliseconds is not more exact


def note_slow_precision(experiment: Experiment, device: torch.device) -> None:
    """Prints a notice if networks compute in bfloat16 on a processor that is slower with it.

    Processors without instructions for bfloat16 take 2 to 30 times as long for a product as in float32.
    """
    configs = (experiment.model, experiment.critic, *experiment.models.values(), *experiment.critics.values())
    if device.type != "cpu" or all(getattr(config, "precision", "float32") == "float32" for config in configs):
        return
    speed = bfloat16_speed()
    if speed < SLOWER:
        print_notice(
            f"precision=bfloat16: this processor takes {1 / speed:.2g} times as long for a product in bfloat16 as in "
            "float32, so precision=float32 trains faster here"
        )
