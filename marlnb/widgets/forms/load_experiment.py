"""An experiment from wherever it may stand: a run's folder, a file, or overrides."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import yaml

from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run, is_run


def load_experiment(source: str) -> Experiment:
    """The experiment of a run's folder, of a YAML or JSON file as `Experiment.to_json` has it, or of overrides.

    Raises:
        ConfigError: none of these, or a value in it that cannot be used. RunError: the run cannot be read.
    """
    text = source.strip()
    if not text:
        raise ConfigError("fill from what? a run's folder, a YAML file, or overrides such as env=mpe/simple_tag")
    path = Path(text).expanduser()
    if is_run(path):
        return Run.open(path).experiment
    if path.suffix in (".yaml", ".yml", ".json"):
        return _from_file(path)
    if "=" in text:
        return Experiment.compose(*_overrides_in(text))
    raise ConfigError(f"{text} is no run's folder, no .yaml or .json file, and holds no overrides such as env=mpe/...")


def _overrides_in(text: str) -> list[str]:
    """The overrides among words as a terminal takes them, also of a whole command, pasted into one line."""
    try:
        words = [word for word in shlex.split(text.replace("\\\n", " ")) if word.strip()]
    except ValueError as error:
        raise ConfigError(f"{text} cannot be read: {error}") from error
    if ["marlnb", "train"] not in (words[:2], words[2:4]):  # `timeout 300` may stand before them
        return words
    return [word for word in words[words.index("train") + 1 :] if not word.startswith(("run=", "--"))]


def _from_file(path: Path) -> Experiment:
    try:
        read = path.read_text(encoding="utf-8")
        data = json.loads(read) if path.suffix == ".json" else yaml.safe_load(read)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds a {type(data).__name__}; an experiment is a mapping of options")
    return Experiment.from_json(data)
