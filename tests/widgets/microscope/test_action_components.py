"""Agents whose action has several components: the microscope attributes each, and tunes units to each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Space
from pettingzoo import ParallelEnv

import marlnb as mnb
from marlnb.widgets.core.background import wait_for_requests
from marlnb.widgets.microscope.attribution import explainable
from marlnb.widgets.microscope.episode_view import read_episode
from marlnb.widgets.microscope.unit_panel import tuning_labels

STEPS = 6


class Steering(ParallelEnv[str, np.ndarray, Any]):
    """The driver steers and accelerates, the guide chooses one of two signs, the clock has one component."""

    metadata: ClassVar[dict[str, Any]] = {"name": "steering"}
    possible_agents: ClassVar[list[str]] = ["driver", "guide", "clock"]

    def observation_space(self, agent: str) -> Box:
        return Box(-1.0, 1.0, (3,), np.float32)

    def action_space(self, agent: str) -> Space[Any]:
        return Discrete(2) if agent == "guide" else Box(-1.0, 1.0, (2 if agent == "driver" else 1,), np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self.rng, self.t = list(self.possible_agents), np.random.default_rng(seed), 0
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.t += 1
        is_over = dict.fromkeys(self.agents, self.t >= STEPS)
        no, rewards = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, 0.0)
        infos: dict[str, Any] = {agent: {} for agent in self.agents}
        outcome = (self._observe(), rewards, no, is_over, infos)
        self.agents = [] if self.t >= STEPS else self.agents
        return outcome

    def _observe(self) -> dict[str, np.ndarray]:
        return {agent: self.rng.uniform(-1, 1, 3).astype(np.float32) for agent in self.agents}


@pytest.fixture(scope="module")
def steering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mnb.Recording]:
    experiment = mnb.Experiment.compose(
        "env=pettingzoo/custom", f"env.entry_point={__name__}:Steering", "env.workers=1", "algorithm=ippo",
        "model.hidden=[8]", "n_envs=2", "rollout_steps=12", "frames=24", "threads=1",
    )  # fmt: skip
    run = mnb.train(experiment, run=Path(tmp_path_factory.mktemp("steering")) / "run", progress=False)
    with mnb.record(run, episodes=8, progress=False) as recording:
        yield recording


def test_each_component_can_be_attributed(steering: mnb.Recording) -> None:
    scope = mnb.microscope(steering)
    to = scope.controls.to
    assert [title for title, _ in to.options] == ["action 0", "action 1", "the critic's value"]
    for component in (0, 1):
        to.index = component
        assert scope.wait(60)
        sent = scope.scope.attributions[0]
        assert sent["reasons"] == {} and set(sent["agents"]) == {"driver", "guide", "clock"}
        driver = sent["agents"]["driver"]
        truth = mnb.attribute(
            steering, group="driver", to="action", target=component, episodes=[0], progress=False,
            baseline={"driver": steering.steps("driver", "observation").to_numpy().mean(axis=0)},
        )  # fmt: skip
        values = dict(zip(driver["names"], np.frombuffer(driver["values"], "<f4").reshape(STEPS, 3).T))
        for name, expected in zip(truth.feature_names, truth.values[:, 0].T):
            np.testing.assert_allclose(values[name], expected, atol=1e-5)
    to.index = 2
    assert scope.wait(60) and scope.scope.attributions[0]["agents"]["driver"]["units"] == "reward"
    scope.close()


def test_a_unit_is_tuned_to_each_component(steering: mnb.Recording) -> None:
    scope = mnb.microscope(steering)
    panel = scope.controls.unit
    for agent, titles in {"driver": ("action 0", "action 1"), "guide": ("action",), "clock": ("action",)}.items():
        scope.pick(agent, 0)
        assert tuple(title for title in panel.label.options if title.startswith("action")) == titles
        for title in titles:
            panel.label.value = title
            wait_for_requests()
            assert panel.tuning is not None and title in panel.tuning.label, panel._problem.value
    assert scope.wait(60)
    scope.close()


def test_components_have_the_names_that_the_environment_gives_them(steering: mnb.Recording) -> None:
    view = read_episode(steering)
    driver, *others = view.groups
    named = replace(driver.spec, action=replace(driver.spec.action, names=("steer", "accelerate")))
    view = replace(view, groups=(replace(driver, spec=named), *others))
    assert list(explainable(view).values()) == ["action steer", "action accelerate", "the critic's value"]
    assert tuning_labels(view, "driver")["action steer"] == ("driver", "action", "steer")
