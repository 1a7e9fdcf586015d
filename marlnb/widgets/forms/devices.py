"""What this machine can train on: its cores, and its GPUs with their free memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from marlnb.allocations import usable_cores
from marlnb.envs.tensor.memory import free_bytes
from marlnb.experiment import Experiment

MIN_WIDE_LAYER = 256  # units from which a GPU, or several threads, pay off
MIN_NATIVE_ENVS = 512  # native envs from which a GPU pays off


@dataclass(frozen=True)
class Device:
    """One device to train on.

    Attributes:
        name: as `Experiment.device` takes it.
        description: for people.
        free_gb: free memory of a GPU; 0 for the CPU.
    """

    name: str
    description: str
    free_gb: float = 0.0


def find_devices() -> list[Device]:
    """The CPU first, then the GPUs in torch's order."""
    cores = usable_cores()
    devices = [Device("cpu", f"CPU, {cores} core{'s' * (cores != 1)} usable")]
    for index in range(torch.cuda.device_count()):
        free, total = free_bytes(torch.device("cuda", index)) or 0, torch.cuda.mem_get_info(index)[1]
        name = torch.cuda.get_device_name(index)
        description = f"GPU {index}, {name}: {free / 1e9:.1f} of {total / 1e9:.1f} GB free"
        devices.append(Device(f"cuda:{index}", description, free / 1e9))
    return devices


def advise(experiment: Experiment, devices: list[Device]) -> tuple[str, int, str]:
    """A device, a number of torch's threads, and the reason.

    Small networks are faster on one core than on a GPU, or than on several cores that wait for each other.
    """
    networks = (experiment.model, experiment.critic, *experiment.models.values(), *experiment.critics.values())
    widest = max((width for network in networks for width in getattr(network, "hidden", None) or ()), default=0)
    gpus = [device for device in devices if device.name != "cpu"]
    is_native = experiment.env.name.startswith(("mpe/", "vmas/", "tag/"))
    if gpus and (widest >= MIN_WIDE_LAYER or (is_native and experiment.n_envs >= MIN_NATIVE_ENVS)):
        best = max(gpus, key=lambda device: device.free_gb)
        reason = f"layers of {widest} units" if widest >= MIN_WIDE_LAYER else f"{experiment.n_envs} native envs"
        return best.name, 1, f"{reason}: the GPU with the most free memory"
    cores = usable_cores()
    if widest >= MIN_WIDE_LAYER and cores > 1:
        return "cpu", 0, f"layers of {widest} units: all {cores} cores pay off"
    return "cpu", 1, "small networks: one core is fastest, the others step environments"
