"""The device in a form: the experiment's stays chosen, on a machine that has it and on one that does not."""

from __future__ import annotations

import pytest

from marlnb.experiment import Experiment
from marlnb.widgets.forms.device_panel import DevicePanel
from marlnb.widgets.forms.devices import Device

GPU = Device("cuda:0", "GPU 0, H200: 139 of 140 GB free", 139.0)


@pytest.mark.parametrize(
    ("device", "gpus", "label"),
    [
        ("cuda:0", [], "cuda:0: not on this machine"),
        ("cuda:0", [GPU], GPU.description),
        ("cuda", [GPU], "cuda: the first GPU"),
        ("cuda", [], "cuda: not on this machine"),
    ],
)
def test_refreshing_keeps_the_device(
    monkeypatch: pytest.MonkeyPatch, device: str, gpus: list[Device], label: str
) -> None:
    devices = [Device("cpu", "CPU, 2 cores usable"), *gpus]
    monkeypatch.setattr("marlnb.widgets.forms.device_panel.find_devices", lambda: devices)
    panel = DevicePanel(Experiment.compose("env=mpe/simple_spread", f"device={device}"))
    changes: list[str] = []
    panel.on_change(lambda: changes.append(panel.device))
    panel.refresh()
    assert panel.device == device and dict(panel._choice.options)[label] == device
    assert set(changes) <= {device}
