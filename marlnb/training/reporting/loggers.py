"""TensorBoard and Weights & Biases, through torchrl's loggers, in addition to the run's files."""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marlnb.display.formatting import marlnb_command
from marlnb.errors import ConfigError, unknown
from marlnb.experiment import Experiment
from marlnb.text_files import read_text
from marlnb.training.reporting.report import Report
from marlnb.training.runs.files import write_atomically
from marlnb.training.runs.run import Run

LOGGERS = ("tensorboard", "wandb")  # each writes into the run's folder of its name
WANDB_ID = "run_id"
WANDB_FRAMES = "logged_frames"
_WANDB_FOLDER = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-(.+)")


class TorchRLLogger:
    """Writes every number of a report as a scalar, with frames as the step.

    What was logged after the frames at which the training continues is trained again. TensorBoard hides the earlier
    numbers. Weights & Biases cannot take back any, and an offline run neither, so it keeps them and gets no others.

    Args:
        frames: at which the training continues.
    """

    def __init__(self, name: str, run: Run, frames: int) -> None:
        self._logger = _LOGGERS[name](run)
        self._frames_file = run.path / "wandb" / WANDB_FRAMES if name == "wandb" else None
        self._logged_frames = 0
        if name == "tensorboard":
            _hide_after(self._logger, frames)
        elif self._frames_file is not None and self._frames_file.exists():
            self._logged_frames = int(read_text(self._frames_file, follow=False) or 0)  # a lost node can leave it empty

    def log(self, report: Report) -> None:
        if report.frames <= self._logged_frames:
            return
        for name, value in scalars(report).items():
            self._logger.log_scalar(name, value, step=report.frames)
        if self._frames_file is not None:
            write_atomically(self._frames_file, f"{report.frames}\n", sync=False)

    def close(self) -> None:
        finish = getattr(self._logger.experiment, "finish", None) or self._logger.experiment.close
        finish()


def check_loggers(names: Sequence[str]) -> None:
    """Raises ConfigError if a logger is unknown or its package is not installed."""
    for name in names:
        if name not in LOGGERS:
            raise ConfigError(unknown("logger", name, LOGGERS))
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"logger {name!r} needs the package {name!r}, which is not installed: pip install 'marlnb[{name}]'"
            )


def open_loggers(experiment: Experiment, run: Run, frames: int) -> list[TorchRLLogger]:
    check_loggers(experiment.loggers)
    return [TorchRLLogger(name, run, frames) for name in experiment.loggers]


def scalars(report: Report) -> dict[str, float]:
    """The numbers of a report by name, without missing ones: `returns/agent`, `learning/agent/entropy`."""
    numbers: dict[str, float] = {}
    pending: list[tuple[str, object]] = [("", report.to_json())]
    while pending:
        name, value = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{name}/{key}".lstrip("/"), item) for key, item in value.items()]
        elif isinstance(value, (int, float)):
            numbers[name] = float(value)
    return numbers


def _tensorboard(run: Run) -> Any:
    from torchrl.record.loggers.tensorboard import TensorboardLogger

    return TensorboardLogger(exp_name="tensorboard", log_dir=str(run.path))


def _hide_after(logger: Any, frames: int) -> None:
    """Makes TensorBoard hide what an earlier session logged after these frames, as `purge_step` of a SummaryWriter."""
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    start = SessionLog(status=SessionLog.START)
    logger.experiment.file_writer.add_event(Event(step=frames + 1, session_log=start))


def _wandb(run: Run) -> Any:
    from torchrl.record.loggers.wandb import WandbLogger
    from wandb.errors import AuthenticationError, CommError, UsageError

    try:
        return WandbLogger(
            exp_name=run.path.name,
            project=run.experiment.wandb_project or os.environ.get("WANDB_PROJECT") or "marlnb",
            entity=run.experiment.wandb_entity or os.environ.get("WANDB_ENTITY"),
            offline=os.environ.get("WANDB_MODE") in ("offline", "dryrun"),  # torchrl turns the first into the second
            save_dir=str(run.path),
            config=run.experiment.to_json(),
            id=wandb_id(run.path),
            resume="allow",
        )
    except (AuthenticationError, CommError, UsageError) as error:
        raise ConfigError(
            f"Weights & Biases cannot be used: {error} Log in once with `wandb login`; or set WANDB_MODE=offline, and "
            f"upload later with `{marlnb_command('sync', run.shown_path)}`"
        ) from error


def wandb_id(run: Path) -> str:
    """The run's id at Weights & Biases, stored in `<run>/wandb/run_id`.

    It is the same in every attempt, online and offline, so that several attempts become one run there. It is unique, so
    that two folders of the same name stay two runs.
    """
    file = run / "wandb" / WANDB_ID
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        ids = [match[1] for entry in sorted(file.parent.iterdir()) if (match := _WANDB_FOLDER.fullmatch(entry.name))]
        write_atomically(file, (ids[0] if ids else secrets.token_hex(8)) + "\n")  # ids: from before the file existed
    return read_text(file, follow=False).strip()


_LOGGERS = {"tensorboard": _tensorboard, "wandb": _wandb}
