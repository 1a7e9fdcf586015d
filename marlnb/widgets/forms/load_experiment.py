"""Load an experiment from a run's folder, a file, or overrides."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.paths import expanded
from marlnb.text_files import read_text, read_yaml
from marlnb.training.runs.files import is_run
from marlnb.training.runs.run import Run

FLAGS_WITH_VALUE = ("--config-dir", "--jobs", "--record")  # of `marlnb train`


def load_experiment(source: str) -> Experiment:
    """The experiment of a run's folder, of a YAML or JSON file as from `Experiment.to_json`, or of overrides.

    The code that a folder or a file names is not imported (`Experiment.unloaded`).

    Raises:
        ConfigError: `source` is none of these, or has a value that is not valid.
        RunError: the run cannot be read.
    """
    text = source.strip()
    if not text:
        raise ConfigError("nothing to load: give a run's folder, a YAML file, or overrides such as env=mpe/simple_tag")
    path = expanded(text)
    if is_run(path):
        return Run.open(path).experiment
    if path.suffix in (".yaml", ".yml", ".json"):
        return _from_file(path)
    if "=" in text:
        overrides, config_dir = _overrides_in(text)
        return Experiment.compose(*overrides, config_dir=config_dir)
    raise ConfigError(
        f"{text} is not the folder of a run, not a .yaml or .json file, and has no overrides such as env=mpe/..."
    )


def _overrides_in(text: str) -> tuple[list[str], str | None]:
    """The overrides in words as a terminal takes them, and the --config-dir of a whole `marlnb train` command.

    The command's other flags do not describe the experiment.
    """
    try:
        words = [word for word in shlex.split(text.replace("\\\n", " ")) if word.strip()]
    except ValueError as error:
        raise ConfigError(f"{text} cannot be parsed: {error}") from error
    if ["marlnb", "train"] not in (words[:2], words[2:4]):  # `timeout 300` may precede them
        return words, None
    overrides, config_dir, rest = [], None, iter(words[words.index("train") + 1 :])
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag in FLAGS_WITH_VALUE:
            value = value if equals else next(rest, "")
            config_dir = value if flag == "--config-dir" else config_dir
        elif not word.startswith(("run=", "-")):
            overrides.append(word)
    return overrides, config_dir


def _from_file(path: Path) -> Experiment:
    try:
        data = json.loads(read_text(path)) if path.suffix == ".json" else read_yaml(path)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds a {type(data).__name__}; an experiment is a mapping of options")
    return Experiment.from_json(data, origin=str(path))
