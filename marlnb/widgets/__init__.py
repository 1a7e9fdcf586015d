"""Training cells: forms made from the configuration's dataclasses, live panels, and what they draw with.

Names are loaded when they are first used, as those of `marlnb` itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marlnb.widgets.core.curves import LiveCurves as LiveCurves
    from marlnb.widgets.forms.algorithm_panel import AlgorithmPanel as AlgorithmPanel
    from marlnb.widgets.forms.device_panel import DevicePanel as DevicePanel
    from marlnb.widgets.forms.environment_panel import EnvironmentPanel as EnvironmentPanel
    from marlnb.widgets.microscope.microscope import Microscope as Microscope
    from marlnb.widgets.recordings.recording_panel import RecordingPanel as RecordingPanel
    from marlnb.widgets.runs.checkpoints_panel import CheckpointsPanel as CheckpointsPanel
    from marlnb.widgets.runs.run_panel import RunPanel as RunPanel
    from marlnb.widgets.runs.run_panel import attach as attach
    from marlnb.widgets.runs.training_panel import TrainingPanel as TrainingPanel

_HOME = {
    "AlgorithmPanel": "marlnb.widgets.forms.algorithm_panel",
    "CheckpointsPanel": "marlnb.widgets.runs.checkpoints_panel",
    "DevicePanel": "marlnb.widgets.forms.device_panel",
    "EnvironmentPanel": "marlnb.widgets.forms.environment_panel",
    "LiveCurves": "marlnb.widgets.core.curves",
    "RecordingPanel": "marlnb.widgets.recordings.recording_panel",
    "Microscope": "marlnb.widgets.microscope.microscope",
    "RunPanel": "marlnb.widgets.runs.run_panel",
    "TrainingPanel": "marlnb.widgets.runs.training_panel",
    "attach": "marlnb.widgets.runs.run_panel",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'marlnb.widgets' has no attribute {name!r}; it has {', '.join(_HOME)}")
