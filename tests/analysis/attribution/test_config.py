"""AttributionConfig: one statement of the options, for the function, the command and its help."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.attribution.config import AttributionConfig
from marlnb.analysis.attribution.methods import METHODS
from marlnb.cli.options import config_from
from marlnb.cli.recordings.attribute import add_arguments, default_prefix
from marlnb.errors import ConfigError, RecordingError
from marlnb.recording.file.reader import Recording


def parse(*words: str) -> AttributionConfig:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return config_from(parser.parse_args(["recording.h5", "--group", "listener", *words]), AttributionConfig)


def test_the_command_offers_every_registered_method() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert len(METHODS) == 11
    text = " ".join(parser.format_help().split())
    for name in METHODS:
        assert name in text
        assert parse("--method", name).settings is METHODS[name]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), AttributionConfig(group="listener")),
        (("--target", "left"), AttributionConfig(group="listener", target="left")),
        (("--target", "3"), AttributionConfig(group="listener", target=3)),
        (("--target", "x/actor/gru", "3"), AttributionConfig(group="listener", target=("x/actor/gru", 3))),
        (("--baseline", "zero"), AttributionConfig(group="listener", baseline="zero")),
        (
            ("--baseline", "episode", "3", "t", "0"),
            AttributionConfig(group="listener", baseline=("episode", 3, "t", 0)),
        ),
        (
            ("--features", "auto", "--episodes", "4"),
            AttributionConfig(group="listener", features="auto", episodes=(4,)),
        ),
    ],
)
def test_words_of_a_command_are_values(words: tuple[str, ...], expected: AttributionConfig) -> None:
    assert parse(*words) == expected


def test_files_are_named_after_what_is_explained() -> None:
    prefix = default_prefix(Path("runs/a.h5"), parse("--to", "unit", "--target", "x/actor/gru", "3"))
    assert prefix == Path("runs/a.attributions/listener-unit-x_actor_gru-3-integrated_gradients")


def test_ranges_globs_and_arrays_take_their_plain_form() -> None:
    config = AttributionConfig(group="a", episodes=range(3), steps=[1], features={"m": ["x_*"]})  # type: ignore[arg-type]
    assert (config.episodes, config.steps, config.features) == ((0, 1, 2), (1,), {"m": ("x_*",)})
    assert isinstance(AttributionConfig(group="a", baseline=np.zeros(3)).baseline, np.ndarray)


def test_invalid_options_name_the_request_and_what_is_valid() -> None:
    with pytest.raises(ConfigError, match="did you mean 'saliency'"):
        AttributionConfig(group="a", method="salience")
    with pytest.raises(ConfigError, match="n_steps must be at least 1; got 0"):
        AttributionConfig(group="a", n_steps=0)
    with pytest.raises(ConfigError, match="averages over baseline='distribution'; got baseline='zero'"):
        AttributionConfig(group="a", method="deeplift_shap", baseline="zero")


def test_a_config_and_its_overrides_equal_keywords(recording: Recording) -> None:
    config = AttributionConfig(group="listener", method="saliency", episodes=(0,))
    by_config = attribute(recording, config, n_steps=3, progress=False)
    by_keywords = attribute(recording, group="listener", method="saliency", episodes=[0], progress=False)
    np.testing.assert_array_equal(by_config.values, by_keywords.values)


def test_episodes_are_numbers_or_a_mask_and_one_number_is_one_episode(recording: Recording) -> None:
    options = {"group": "listener", "method": "saliency", "steps": 3, "progress": False}
    by_number = attribute(recording, episodes=[1], **options)  # type: ignore[arg-type]
    assert by_number.episode.tolist() == [1] and by_number.t.tolist() == [3]
    for episodes in (1, np.arange(60) == 1, slice(1, 2)):
        np.testing.assert_array_equal(attribute(recording, episodes=episodes, **options).values, by_number.values)
    with pytest.raises(RecordingError, match="a mask of 60 booleans"):
        attribute(recording, episodes=np.ones(3, bool), **options)
