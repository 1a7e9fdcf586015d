"""Training cells: forms made from the configuration's dataclasses, live panels, and what they draw with.

Names are loaded when they are first used, as those of `marlnb` itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marlnb.widgets.algorithm_panel import AlgorithmPanel as AlgorithmPanel
    from marlnb.widgets.checkpoints_panel import CheckpointsPanel as CheckpointsPanel
    from marlnb.widgets.curves import LiveCurves as LiveCurves
    from marlnb.widgets.device_panel import DevicePanel as DevicePanel
    from marlnb.widgets.environment_panel import EnvironmentPanel as EnvironmentPanel
    from marlnb.widgets.microscope.microscope import Microscope as Microscope
    from marlnb.widgets.recording_panel import RecordingPanel as RecordingPanel
    from marlnb.widgets.run_panel import RunPanel as RunPanel
    from marlnb.widgets.run_panel import attach as attach
    from marlnb.widgets.training_panel import TrainingPanel as TrainingPanel

_HOME = {
    "AlgorithmPanel": "marlnb.widgets.algorithm_panel",
    "CheckpointsPanel": "marlnb.widgets.checkpoints_panel",
    "DevicePanel": "marlnb.widgets.device_panel",
    "EnvironmentPanel": "marlnb.widgets.environment_panel",
    "LiveCurves": "marlnb.widgets.curves",
    "RecordingPanel": "marlnb.widgets.recording_panel",
    "Microscope": "marlnb.widgets.microscope.microscope",
    "RunPanel": "marlnb.widgets.run_panel",
    "TrainingPanel": "marlnb.widgets.training_panel",
    "attach": "marlnb.widgets.run_panel",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'marlnb.widgets' has no attribute {name!r}; it has {', '.join(_HOME)}")
