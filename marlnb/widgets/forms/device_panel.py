"""DevicePanel: the device to train on, its free memory, and the recommended device for an experiment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as w

from marlnb.experiment import Experiment
from marlnb.widgets.core.controls import Dropdown, button_for
from marlnb.widgets.core.style import LABEL, note_html, styled
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.devices import advise, find_devices
from marlnb.widgets.forms.form import ConfigForm


class DevicePanel:
    """Device and threads of an experiment.

    Attributes:
        widget: what a notebook displays.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._listeners: list[Callable[[], None]] = []
        self._devices = find_devices()
        self._choice = Dropdown(
            options=self._options(), description="device", style=LABEL, layout=w.Layout(width="40em")
        )
        self._threads = ConfigForm(Experiment, only=["threads"], on_change=self._notify)
        self._advice = w.HTML()
        self._take = button_for(
            self.take_advice, "Use recommendation", "", "choose the recommended device and threads", width="12em"
        )
        self._refresh = button_for(
            self.refresh, "Refresh", "refresh", "find devices and their free memory", width="9em"
        )
        self._choice.observe(lambda _: self._notify(), "value")
        buttons = w.HBox([self._take, self._refresh])
        self.widget = styled(self._choice, self._threads.box, self._advice, buttons, name="marlnb-device")
        self.set(experiment)

    @property
    def device(self) -> str:
        return str(self._choice.value)

    @property
    def threads(self) -> int:
        """Raises ConfigError: the input is not a number of threads."""
        return int(self._threads.fields["threads"].value)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each change."""
        self._listeners.append(listener)

    @with_ui_lock
    def set(self, experiment: Experiment) -> None:
        """Shows the device and threads of an experiment, and the recommended ones."""
        if experiment.device not in [value for _, value in self._choice.options]:
            self._choice.options = [*self._options(), (f"{experiment.device}: not on this machine", experiment.device)]
        self._choice.value = experiment.device
        self._threads.set(experiment)
        self.show_advice(experiment)

    @with_ui_lock
    def show_advice(self, experiment: Experiment) -> None:
        """Shows the recommendation for an experiment; the chosen device does not change."""
        self._experiment = experiment
        device, threads, reason = advise(experiment, self._devices)
        n_threads = "all cores" if threads == 0 else f"{threads} thread{'s' * (threads != 1)}"
        self._advice.value = note_html(f"recommended: {device}, {n_threads} ({reason})")

    @with_ui_lock
    def take_advice(self) -> None:
        device, threads, _ = advise(self._experiment, self._devices)
        self._choice.value = device
        self._threads.set({"threads": threads})
        self._notify()

    @with_ui_lock
    def refresh(self) -> None:
        """Finds the devices and their free memory again."""
        chosen = self.device
        self._devices = find_devices()
        self._choice.options = self._options()
        if chosen in [device.name for device in self._devices]:
            self._choice.value = chosen

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return self.widget._repr_mimebundle_(**options)  # type: ignore[no-any-return]

    def _options(self) -> list[tuple[str, str]]:
        return [(device.description, device.name) for device in self._devices]

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
