"""Previews of environments, also of those that cannot be drawn."""

from __future__ import annotations

import pytest

from marlnb.envs.custom import environment
from marlnb.errors import EnvError
from marlnb.experiment import Experiment
from marlnb.widgets.forms.env_preview import play_random_episode, preview_env
from tests.envs.sample_envs import Scripted


@environment("test/undrawn")
def undrawn(broken: bool = False) -> Scripted:
    """Takes no render_mode."""
    if broken:
        raise ValueError("the door is stuck")
    return Scripted(False)


def test_an_env_without_render_mode_has_no_picture() -> None:
    preview = preview_env(Experiment.compose("env=test/undrawn", "env.workers=0").env)
    assert preview.spec.agents == ("a_0", "a_1", "a_2") and preview.picture == b""
    assert "which its constructor does not accept" in preview.no_picture and "Traceback" not in preview.no_picture


def test_an_episode_without_pictures_has_returns() -> None:
    animation, returns = play_random_episode(Experiment.compose("env=test/undrawn", "env.workers=0").env, max_steps=2)
    assert animation == b"" and set(returns) == {"a_0", "a_1", "a_2"}


def test_an_env_that_cannot_be_built_says_why() -> None:
    with pytest.raises(EnvError, match="the door is stuck"):
        preview_env(Experiment.compose("env=test/undrawn", "env.kwargs.broken=true", "env.workers=0").env)
