"""What this machine can train on: its cores, and its GPUs with the memory that is free on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from marlnb.cores import usable_cores
from marlnb.experiment import Experiment
from marlnb.formatting import format_bytes

WIDE = 256  # units of a layer from which a GPU, or several threads, pay off
MANY_COPIES = 512  # native copies from which a GPU pays off


@dataclass(frozen=True)
class Device:
    """One place to train.

    Attributes:
        name: as `Experiment.device` takes it.
        words: what it is, for people.
        free_gb, total_gb: of a GPU's memory; 0 for the CPU.
    """

    name: str
    words: str
    free_gb: float = 0.0
    total_gb: float = 0.0


def find_devices() -> list[Device]:
    """The CPU first, then the GPUs that torch finds, in its order."""
    cores = usable_cores()
    found = [Device("cpu", f"CPU, {cores} core{'s' * (cores != 1)} usable")]
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
        words = f"GPU {index}, {name}: {format_bytes(free)} of {format_bytes(total)} free"
        found.append(Device(f"cuda:{index}", words, free / 1e9, total / 1e9))
    return found


def advise(experiment: Experiment, devices: list[Device]) -> tuple[str, int, str]:
    """A device, a number of torch's threads, and why.

    Small networks are quicker on one core than on a GPU, or than on several cores that wait for one another.
    """
    widest = max((width for model in _models(experiment) for width in _widths(model)), default=0)
    gpus = [device for device in devices if device.name != "cpu"]
    native = experiment.env.name.startswith(("mpe/", "vmas/", "tag/"))
    if gpus and (widest >= WIDE or (native and experiment.n_envs >= MANY_COPIES)):
        best = max(gpus, key=lambda device: device.free_gb)
        why = f"layers of {widest} units" if widest >= WIDE else f"{experiment.n_envs} copies of a native environment"
        return best.name, 1, f"{why}: the GPU with most memory free"
    cores = usable_cores()
    if widest >= WIDE and cores > 1:
        return "cpu", 0, f"layers of {widest} units: all {cores} cores pay off"
    return "cpu", 1, "small networks: one core is quickest, the others step environments"


def _models(experiment: Experiment) -> list[object]:
    own = (*experiment.models.values(), *experiment.critics.values())
    return [model for model in (experiment.model, experiment.critic, *own) if model is not None]


def _widths(model: object) -> tuple[int, ...]:
    return tuple(getattr(model, "hidden", ()) or ())
