"""DevicePanel: the device to train on, its free memory, and the recommended device for an experiment."""

from __future__ import annotations

import ipywidgets as w

from marlnb.experiment import Experiment
from marlnb.widgets.core.controls import Dropdown, button_for
from marlnb.widgets.core.panel import Panel
from marlnb.widgets.core.style import LABEL, Message, styled
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.devices import advise, find_devices
from marlnb.widgets.forms.form import ConfigForm


class DevicePanel(Panel):
    """Device and threads of an experiment.

    Attributes:
        widget: what a notebook displays.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._devices = find_devices()
        wide = w.Layout(width="40em")
        options = self._options(experiment.device)
        self._choice = Dropdown(options=options, description="device", style=LABEL, layout=wide)
        self._threads = ConfigForm(Experiment, only=["threads"], on_change=self._notify)
        self._advice = Message()
        tooltip = "choose the recommended device and threads"
        take = button_for(self.take_advice, "Use recommendation", tooltip=tooltip, width="15em")
        refresh = button_for(self.refresh, "Refresh", "refresh", "find devices and their free memory", width="9em")
        self._choice.observe(lambda _: self._notify(), "value")
        buttons = w.HBox([take, refresh])
        self.widget = styled(self._choice, self._threads.box, self._advice, buttons, name="marlnb-device")
        self.set(experiment)

    @property
    def device(self) -> str:
        return str(self._choice.value)

    @property
    def threads(self) -> int:
        """Raises ConfigError: the input is not a number of threads."""
        return int(self._threads.fields["threads"].value)

    @with_ui_lock
    def set(self, experiment: Experiment) -> None:
        """Shows the device and threads of an experiment, and the recommended ones."""
        self._offer(experiment.device)
        self._threads.set(experiment)
        self.show_advice(experiment)

    @with_ui_lock
    def show_advice(self, experiment: Experiment) -> None:
        """Shows the recommendation for an experiment; the chosen device does not change."""
        self._experiment = experiment
        device, threads, reason = advise(experiment, self._devices)
        n_threads = "all cores" if threads == 0 else f"{threads} thread{'s' * (threads != 1)}"
        self._advice.show_note(f"recommended: {device}, {n_threads} ({reason})")

    @with_ui_lock
    def take_advice(self) -> None:
        device, threads, _ = advise(self._experiment, self._devices)
        self._choice.value = device
        self._threads.set({"threads": threads})
        self._notify()

    @with_ui_lock
    def refresh(self) -> None:
        """Finds the devices and their free memory again."""
        self._devices = find_devices()
        self._offer(self.device)

    def _offer(self, chosen: str) -> None:
        """Offers the devices of this machine and the chosen one, which stays chosen."""
        self._choice.options = self._options(chosen)
        self._choice.value = chosen

    def _options(self, chosen: str) -> list[tuple[str, str]]:
        devices = [(device.description, device.name) for device in self._devices]
        if chosen in [name for _, name in devices]:
            return devices
        is_here = chosen == "cuda" and len(devices) > 1
        return [*devices, (f"{chosen}: {'the first GPU' if is_here else 'not on this machine'}", chosen)]
