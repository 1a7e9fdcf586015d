"""The environment that a recording was made in: what its options are, and whether another environment has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from marlnb.codec import to_json
from marlnb.config import EnvConfig
from marlnb.errors import ConfigError, RecordingError
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.policy_source import PolicySource

WITHOUT_EFFECT = frozenset({"render", "workers"})  # options that change no number

Options = Mapping[str, Any]


def check_env(recording: Recording, source: PolicySource, env: EnvConfig | None) -> None:
    """Raises RecordingError where the environment, or the source's own (None), has other options than the recorded."""
    recorded, own = recorded_options(recording), source.experiment.env if source.experiment else None
    actual = _options(env or own)
    differing = differing_options(recorded, actual)
    if differing:
        expected, got = (in_words(options, differing) for options in (recorded, actual))
        raise RecordingError(
            f"{recording.path.name} was recorded in an environment with {expected}, but would be played in one "
            f"with {got}; give env="
        )
    if env is None and own is None and recorded:
        raise RecordingError(
            f"{recording.path.name} was recorded in an environment with {in_words(recorded, recorded)}; give env="
        )


def recorded_options(recording: Recording) -> Options:
    """The options of the recorded environment and its name; empty if they are not known."""
    experiment = recording.experiment
    own = _options(experiment.env if experiment else None)
    return recording.settings.get("env_config") or own


def differing_options(a: Options, b: Options) -> list[str]:
    """Names of the options that both have, with other values."""
    return sorted(name for name in (a.keys() & b.keys()) - WITHOUT_EFFECT if a[name] != b[name])


def in_words(options: Options, names: Collection[str]) -> str:
    return ", ".join(f"{name}={options[name]!r}" for name in names if name not in WITHOUT_EFFECT)


def _options(env: EnvConfig | None) -> Options:
    """Empty if there is none, or JSON cannot hold them."""
    try:
        return to_json(env) or {}
    except ConfigError:
        return {}
