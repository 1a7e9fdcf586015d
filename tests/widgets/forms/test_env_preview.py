"""Previews of environments, also of those that cannot be drawn."""

from __future__ import annotations

import pytest

from marlnb.envs.custom import environment
from marlnb.errors import EnvError
from marlnb.experiment import Experiment
from marlnb.widgets.forms.env_preview import play_random_episode, preview_env
from marlnb.widgets.forms.environment_panel import EnvironmentPanel
from tests.envs.sample_envs import Scripted
from tests.widgets.trained import until


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


def test_a_problem_of_building_leaves_its_field_when_it_is_solved() -> None:
    panel = EnvironmentPanel("mpe/simple_spread")
    until(lambda: panel.spec is not None)
    panel.options.fields["groups"].enter('{"left": ["agent_0"], "right": ["agent_1", "agent_2"]}')
    panel.part.form.fields["N"].enter("2")
    until(lambda: "groups" in panel.options.problems)
    panel.part.form.fields["N"].enter("3")
    until(lambda: panel.spec is not None)
    assert panel.options.problems == {} and panel.spec is not None and panel.spec.group_names == ("left", "right")
