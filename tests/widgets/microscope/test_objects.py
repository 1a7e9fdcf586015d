"""A custom environment can supply the positions of its objects and the objects that its features describe."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import marlnb as mnb
from marlnb.envs.custom import pettingzoo_vector_env
from marlnb.widgets.microscope.objects import NOT_SUPPLIED, ObjectFinder
from tests.widgets.microscope.corridor import Corridor


@pytest.fixture(scope="module")
def corridor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mnb.Recording]:
    """Two episodes of agents that walk at random, stepped by a worker while they learned."""
    experiment = mnb.Experiment.compose(
        "env=pettingzoo/custom", "env.entry_point=tests.widgets.microscope.corridor:Corridor", "env.workers=1",
        "algorithm=ippo", "model.hidden=[8]", "n_envs=2", "rollout_steps=12", "frames=24", "threads=1",
    )  # fmt: skip
    run = mnb.train(experiment, run=Path(tmp_path_factory.mktemp("corridor")) / "run", progress=False)
    with mnb.record(run, episodes=2, progress=False) as recording:
        yield recording


def test_attribution_is_drawn_onto_supplied_objects(corridor: mnb.Recording) -> None:
    scope = mnb.microscope(corridor, 1)
    assert scope.wait(120) and scope.scope.notes == [""]
    film = scope.scope.get_state()["films"][0]
    seen = corridor.steps("walker", "observation").sel(episode=1).to_numpy()  # [time, agent, feature]
    assert sorted(map(int, film["positions"])) == list(range(6)) == sorted(map(int, film["images"]))
    for t in range(6):
        assert film["positions"][str(t)]["door"] == pytest.approx((seen[t, 0, 2] + 0.05, 0.5))
        assert film["positions"][str(t)]["walker_1"] == pytest.approx((seen[t, 0, 1] + 0.05, 0.5))
    sent = scope.scope.attributions[0]["agents"]["walker_0"]
    assert sent["objects"] == ["door", "walker_0", "walker_1"] and scope.scope.explained == "walker_0"
    values = np.frombuffer(sent["values"], "<f4").reshape(6, 4)
    by_object = np.frombuffer(sent["by_object"], "<f4").reshape(6, 3)
    own = np.abs(values[:, sent["names"].index("observation[0]")])
    np.testing.assert_allclose(by_object[:, 1], own, atol=1e-6)
    assert own.max() > 0


def test_wrong_objects_are_reported_and_the_pictures_stay(
    corridor: mnb.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Corridor, "described", ("door",))
    scope = mnb.microscope(corridor)
    assert scope.wait(120)
    assert "got 1 objects for 4 features; attribution is shown as bars only" in scope.scope.notes[0]
    assert sorted(scope.scope.images(0)) == list(range(6))
    assert scope.scope.attributions[0]["agents"]["walker_0"]["objects"] == []


def test_an_environment_with_one_of_the_methods_has_bars_only() -> None:
    class Silent(Corridor):
        feature_objects = None  # type: ignore[assignment]

    with pettingzoo_vector_env(Silent, 1) as env:
        env.reset(0)
        objects = ObjectFinder(env)
        assert objects.problem == NOT_SUPPLIED and objects.positions() is None
