"""Tuned settings: the shipped files are valid, and an entry replaces defaults only, never what was set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pettingzoo.butterfly.pistonball.pistonball import parallel_env

from marlnb.composition.differences import started_values
from marlnb.composition.overrides import overrides_of
from marlnb.composition.tuned import tuned_entries
from marlnb.config import ALGORITHMS, ENVIRONMENTS
from marlnb.envs.custom import environment
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.train import check_same

PPO = {"n_envs": 64, "rollout_steps": 20, "frames": 500_000, "algorithm.lr": 0.007, "algorithm.entropy_coef": 0.05}
OFF_POLICY = {"n_envs": 32, "rollout_steps": 10, "algorithm.updates": 8, "model.hidden": [24], "critic.hidden": [48]}
FOUND_BY = {"command": "python -m search", "seeds": [7, 8], "budget": "60 s each", "date": "2026-11-23"}
ENTRIES: list[dict[str, Any]] = [
    {
        "env": "mpe/simple_spread",
        "algorithm": "ippo",
        "env_options": {"N": 5},
        "options": {"algorithm.lr": 0.001},
        "found_by": FOUND_BY,
    },
    {"env": ["mpe/simple_spread", "mpe/simple"], "algorithm": ["ippo", "mappo"], "options": PPO, "found_by": FOUND_BY},
    {"env": "mpe/simple_spread", "algorithm": "maddpg", "options": OFF_POLICY, "found_by": FOUND_BY},
]


@pytest.fixture(autouse=True)
def entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(SimpleSpreadConfig, "tuned", ENTRIES)
    yield


def composed(*overrides: str) -> dict[str, Any]:
    return Experiment.compose("env=mpe/simple_spread", *overrides).to_json()


def test_the_experiment_of_two_names_has_the_tuned_values_and_says_so() -> None:
    options = composed("algorithm=ippo")
    assert (options["n_envs"], options["rollout_steps"], options["frames"]) == (64, 20, 500_000)
    assert (options["algorithm"]["lr"], options["algorithm"]["entropy_coef"]) == (0.007, 0.05)
    found_by = {**FOUND_BY, "score": ""}
    assert options["tuned"] == [{"env": "mpe/simple_spread", "algorithm": "ippo", "found_by": found_by}]
    text = repr(Experiment.compose("env=mpe/simple_spread", "algorithm=ippo"))
    assert "tuned for mpe/simple_spread, found by python -m search (seeds 7, 8; 60 s each; 2026-11-23)" in text


def test_every_override_wins_and_tuned_false_switches_the_entry_off(tmp_path: Path) -> None:
    options = composed("algorithm=ippo", "n_envs=32", "algorithm.lr=3e-4")  # the options' own defaults
    assert options["n_envs"] == 32 and options["algorithm"]["lr"] == 3e-4 and options["rollout_steps"] == 20
    options = composed("algorithm=ippo", "tuned=false")
    assert options["tuned"] is None and options["n_envs"] == 32 and options["algorithm"]["lr"] == 3e-4
    with pytest.raises(ConfigError, match="tuned is true or false"):
        composed("tuned=maybe")
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "experiment").mkdir()
    (tmp_path / "algorithm" / "careful.yaml").write_text("defaults: [ippo]\nlr: 1e-4\n")
    (tmp_path / "experiment" / "mine.yaml").write_text("env: mpe/simple_spread\nalgorithm: careful\nn_envs: 16\n")
    mine = Experiment.compose("experiment=mine", "rollout_steps=40", config_dir=str(tmp_path))
    lr, entropy_coef = (getattr(mine.algorithm, name) for name in ("lr", "entropy_coef"))
    assert (mine.n_envs, mine.rollout_steps, lr, entropy_coef) == (16, 40, 1e-4, 0.05)
    (tmp_path / "experiment" / "mine.yaml").write_text("env: mpe/simple_spread\nalgorithm: careful\ntuned: false\n")
    assert Experiment.compose("experiment=mine", config_dir=str(tmp_path)).n_envs == 32


def test_an_entry_can_need_options_of_the_environment() -> None:
    assert composed("algorithm=ippo", "env.N=5")["algorithm"]["lr"] == 0.001
    assert composed("algorithm=mappo", "env.N=5")["algorithm"]["lr"] == 0.007


def test_a_group_has_the_settings_of_its_own_algorithm() -> None:
    options = composed("algorithm=ippo", "algorithms.agent=maddpg", "algorithms.agent.tau=0.5")
    agent = options["algorithms"]["agent"]
    assert options["n_envs"] == 64 and options["algorithm"]["lr"] == 0.007 and agent["tau"] == 0.5
    assert agent["updates"] == 8 * (64 * 20) // (32 * 10)  # as many per frame as in the search
    assert [settings["algorithm"] for settings in options["tuned"]] == ["ippo", "maddpg"]
    inherited = composed("algorithm=ippo", "algorithms.agent.gamma=0.5")["algorithms"]["agent"]
    assert inherited["lr"] == 0.007 and inherited["gamma"] == 0.5


def test_networks_of_another_kind_keep_their_own_defaults() -> None:
    options = composed("algorithm=maddpg")
    assert options["model"]["hidden"] == [24] and options["critic"]["hidden"] == [48]
    options = composed("algorithm=maddpg", "critic.hidden=[9]", "models.agent_0=mlp")
    assert options["critic"]["hidden"] == [9] and options["models"]["agent_0"]["hidden"] == [24]
    assert composed("algorithm=maddpg", "critic=null").get("critic") is None
    options = composed("algorithm=mappo", "model=gru")
    assert options["critic"] is None and 20 % options["algorithm"]["sequence_length"] == 0
    assert composed("model=gru", "algorithm.sequence_length=8")["rollout_steps"] == 24


@pytest.mark.parametrize(
    ("words", "kind", "hidden"),
    [
        ((), "gru", [24]),
        (("model.hidden=[9]",), "gru", [9]),
        (("model=gru",), "gru", [24]),
        (("model=mlp",), "mlp", [64, 64]),
        (("model=mlp", "model.hidden=[9]"), "mlp", [9]),
        (("tuned=false",), "mlp", [64, 64]),
        (("algorithm=mappo",), "mlp", [64, 64]),
    ],
)
def test_an_entry_can_choose_the_kind_of_network(
    words: tuple[str, ...], kind: str, hidden: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"env": "mpe/simple_spread", "algorithm": "ippo", "options": {"model": "gru", "model.hidden": [24]}}
    monkeypatch.setattr(SimpleSpreadConfig, "tuned", [entry])
    experiment = Experiment.compose("env=mpe/simple_spread", "algorithm=ippo", *words)
    assert (experiment.model.name, experiment.to_json()["model"]["hidden"]) == (kind, hidden)
    written = overrides_of(experiment)
    assert Experiment.compose(*written) == experiment and ("model=mlp" in written) == ("model=mlp" in words)
    assert "model=gru" not in written


def test_updates_per_frame_stay_those_of_the_search_and_short_trainings_have_iterations() -> None:
    assert composed("algorithm=maddpg", "n_envs=8")["algorithm"]["updates"] == 2
    options = composed("algorithm=maddpg", "frames=800")
    assert (options["n_envs"], options["algorithm"]["updates"]) == (8, 2)
    assert composed("algorithm=maddpg", "frames=800", "n_envs=32")["n_envs"] == 32


@pytest.mark.parametrize(
    "words",
    [
        ("algorithm=maddpg", "frames=6400", "algorithm.updates=3"),
        ("algorithm=maddpg", "critic.hidden=[9]", "models.agent_0=gru", "rollout_steps=50"),
        ("algorithm=maddpg", "critic=null", "model.hidden=[7]"),
        ("algorithm=ippo", "algorithms.agent=maddpg", "n_envs=32", "tuned=false"),
        ("algorithm=ippo", "algorithms.agent.anneal_frames=0"),
        ("model=gru", "algorithm.sequence_length=8", "algorithm.lr=1e-4", "env.N=5"),
    ],
)
def test_overrides_of_it_compose_the_same_experiment_and_name_only_what_was_set(words: tuple[str, ...]) -> None:
    experiment = Experiment.compose("env=mpe/simple_spread", *words)
    written = overrides_of(experiment)
    assert Experiment.compose(*written) == experiment
    assert Experiment.from_json(experiment.to_json()) == experiment
    if "model=gru" not in words and "critic.hidden=[9]" not in words:
        assert len(written) <= len(words) + 1


def test_a_run_keeps_what_it_was_composed_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Experiment.compose("env=mpe/simple_spread", "algorithm=ippo", "frames=800")
    run = Run.create(tmp_path / "run", experiment)
    again = [{**entry, "found_by": {"command": "another search"}} for entry in ENTRIES]
    monkeypatch.setattr(SimpleSpreadConfig, "tuned", again)
    assert Run.open(run.path).experiment == experiment
    check_same(run, Experiment.compose("env=mpe/simple_spread", "algorithm=ippo", "frames=800"))  # the same values
    words = overrides_of(experiment)  # not tuned as now: written out in full
    assert words[-1] == "tuned=false" and "algorithm.lr=0.007" in words
    assert Experiment.compose(*words) == replace(experiment, tuned=None)


def test_wrong_entries_name_their_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def error(entry: dict[str, Any]) -> str:
        monkeypatch.setattr(SimpleSpreadConfig, "tuned", [{"env": "mpe/simple_spread", "algorithm": "ippo", **entry}])
        with pytest.raises(ConfigError) as caught:
            composed("algorithm=ippo")
        return str(caught.value)

    assert "entries[0]" in error({"options": {"seed": 3}}) and "seed" in error({"options": {"seed": 3}})
    assert "algorithm.lrr" in error({"options": {"algorithm.lrr": 3}})
    assert "algorithm.lr must be more than 0" in error({"options": {"algorithm.lr": -1}})
    assert "no option 'entries[0].option'" in error({"option": {}})
    file = tmp_path / "tuned.yaml"
    file.write_text("entry: []\n")
    monkeypatch.setattr(SimpleSpreadConfig, "tuned", file)
    with pytest.raises(ConfigError, match="must hold the key `entries`"):
        composed()


def test_an_own_environment_registers_its_own_settings() -> None:
    name = "tuned_test/balls"
    entry = {"env": name, "algorithm": "ippo", "options": {"n_envs": 160, "algorithm.gamma": 0.5}}
    environment(name, tuned=[entry])(parallel_env)
    experiment = Experiment.compose(f"env={name}", "algorithm=ippo")
    assert experiment.n_envs == 160 and "found by hand" in repr(experiment)


def test_an_entry_sets_what_agents_see_and_not_their_task(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, names = ENVIRONMENTS.get("pettingzoo/pistonball"), ("env=pettingzoo/pistonball", "algorithm=ippo")
    entry = {"env": kind.name, "algorithm": "ippo", "options": {"env.pixel_stride": 5}, "found_by": FOUND_BY}
    monkeypatch.setattr(kind, "tuned", [entry])
    experiment = Experiment.compose(*names)
    assert experiment.to_json()["env"]["pixel_stride"] == 5
    assert overrides_of(experiment) == [*names]
    assert started_values(experiment) == {"env.pixel_stride": (5, 1)}
    monkeypatch.setattr(kind, "tuned", [{**entry, "options": {"env.max_steps": 10}}])
    with pytest.raises(ConfigError, match=r"no option 'env.max_steps' in a tuned entry .* Valid: env.pixel_stride"):
        Experiment.compose(*names)


@pytest.mark.parametrize(
    ("words", "stride"),
    [
        (["env.pixel_stride=1"], 1),
        (["env.pixel_stride=2"], 2),
        (["tuned=false"], 1),
        (["tuned=false", "env.pixel_stride=4"], 4),
        (["algorithm=a2c"], 1),
        (["algorithm=a2c", "env.pixel_stride=4"], 4),
    ],
)
def test_an_override_of_what_agents_see_is_composed_again(
    words: list[str], stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = ENVIRONMENTS.get("pettingzoo/pistonball")
    entry = {"env": kind.name, "algorithm": "ippo", "options": {"env.pixel_stride": 5}, "found_by": FOUND_BY}
    monkeypatch.setattr(kind, "tuned", [entry])
    experiment = Experiment.compose("env=pettingzoo/pistonball", *words)
    assert experiment.to_json()["env"]["pixel_stride"] == stride
    assert Experiment.compose(*overrides_of(experiment)) == experiment


def test_every_shipped_entry_composes_on_its_environments_with_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    kinds = {kind.tuned: kind for _, kind in ENVIRONMENTS.items() if isinstance(kind.tuned, Path)}
    assert len(kinds) >= 3
    for kind in kinds.values():
        for entry in tuned_entries(kind):
            assert entry.found_by.command and entry.found_by.date
            names = [entry.env] if isinstance(entry.env, str) else entry.env
            algorithms = [entry.algorithm] if isinstance(entry.algorithm, str) else entry.algorithm
            assert {*algorithms} <= {*ALGORITHMS.names()} and {*names} <= {*ENVIRONMENTS.names()}
            words = [f"env.{key}={str(value).lower()}" for key, value in entry.env_options.items()]
            experiment = Experiment.compose(f"env={names[0]}", f"algorithm={algorithms[0]}", *words)
            experiment.check_without_env()
            assert experiment.model.name == entry.model
            options = experiment.to_json()
            for key, value in entry.options.items():
                if key != "model":
                    part, _, option = key.rpartition(".")
                    assert (options[part] if part else options)[option] == value, (names[0], key)
