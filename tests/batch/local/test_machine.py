"""GPUs, found without torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.batch.local import machine
from marlnb.batch.local.machine import gpu_names, parse_listing

LISTING = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 2g.10gb     Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-0aa0aa00-d33d-2b2c-524d-9e3d8d2b8a77)
"""


def test_a_gpu_that_is_split_counts_as_its_parts() -> None:
    assert parse_listing(LISTING) == [
        "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f",
        "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb",
        "GPU-0aa0aa00-d33d-2b2c-524d-9e3d8d2b8a77",
    ]
    assert parse_listing("No devices found.\n") == []


def test_what_is_visible_already_is_all_there_is() -> None:
    def visible(value: str) -> list[str]:
        return gpu_names({"CUDA_VISIBLE_DEVICES": value}, lambda: LISTING)

    assert visible("3, 1") == ["3", "1"]
    assert visible("MIG-a,GPU-b") == ["MIG-a", "GPU-b"]
    assert visible("") == visible("-1") == visible("NoDevFiles") == []
    assert visible("2,-1,0") == ["2"]  # as CUDA reads it: nothing after an invalid one
    assert len(gpu_names({}, lambda: LISTING)) == 3


def test_without_nvidia_smi_the_driver_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "0000:01:00.0"
    folder.mkdir()
    (folder / "information").write_text("Model: \t NVIDIA H100\nGPU UUID: \t GPU-5d5ba0d6-d33d\nBus Type: PCIe\n")
    monkeypatch.setattr(machine, "NVIDIA_GPUS", folder.parent)
    assert gpu_names({}, lambda: None) == ["GPU-5d5ba0d6-d33d"]
