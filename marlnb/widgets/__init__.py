"""Widgets for notebooks: forms made from the configuration's dataclasses, live panels, and the microscope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marlnb.lazy import lazy_exports

if TYPE_CHECKING:
    from marlnb.widgets.core.curves import LiveCurves as LiveCurves
    from marlnb.widgets.forms.algorithm_panel import AlgorithmPanel as AlgorithmPanel
    from marlnb.widgets.forms.device_panel import DevicePanel as DevicePanel
    from marlnb.widgets.forms.environment_panel import EnvironmentPanel as EnvironmentPanel
    from marlnb.widgets.microscope.microscope import Microscope as Microscope
    from marlnb.widgets.recordings.recording_panel import RecordingPanel as RecordingPanel
    from marlnb.widgets.runs.attach import attach as attach
    from marlnb.widgets.runs.checkpoints_panel import CheckpointsPanel as CheckpointsPanel
    from marlnb.widgets.runs.run_panel import RunPanel as RunPanel
    from marlnb.widgets.runs.runs_panel import RunsPanel as RunsPanel
    from marlnb.widgets.runs.training_panel import TrainingPanel as TrainingPanel

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
