from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra

from marlnb.composition.compose import chosen_parts, compose_env
from marlnb.errors import ConfigError, UnknownNameError
from marlnb.experiment import Experiment

ENV = "env=pettingzoo/multiwalker"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MARLNB_CONFIG_DIR", raising=False)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A user's folder, with variants of a nested environment built on each other."""
    files = {
        "env/multiwalker/shared.yaml": "defaults: [pettingzoo/multiwalker]\nkwargs: {shared_reward: true}\n",
        "env/multiwalker/two.yaml": "defaults:\n  - shared\n  - _self_\nkwargs:\n  n_walkers: 2\n",
        "env/multiwalker/absolute.yaml": "defaults:\n  - /env/pettingzoo/multiwalker@_here_\nmax_steps: 7\n",
        "env/multiwalker/paired.yaml": "defaults:\n  - /env: pettingzoo/multiwalker\nmax_steps: 8\n",
        "env/named.yml": "name: pettingzoo/multiwalker\nmax_steps: ${frames}\n",
        "env/misspelt.yaml": "defaults: [pettingzoo/multiwalker]\nmax_stps: 9\n",
        "env/nothing.yaml": "max_steps: 9\n",
        "env/missing.yaml": "defaults: [pettingzoo/multiwalkr]\n",
        "env/circle.yaml": "defaults: [circle2]\n",
        "env/circle2.yaml": "defaults: [circle]\n",
        "env/broken.yaml": "a: [1\n",
        "env/text.yaml": "defaults: mpe/simple_spread\n",
        "env/none.yaml": "defaults:\n",
        "env/itself.yaml": "defaults: [itself]\n",
        "algorithm/careful.yaml": "defaults: [mappo]\nlr: 1e-5\n",
        "model/deep/wide.yaml": "defaults: [mlp]\nhidden: [512, 512]\n",
        "experiment/plain.yaml": (
            "env: multiwalker/two\nalgorithm: {name: careful, gamma: 0.5}\nmodel: deep/wide\nframes: 77\n"
            "algorithms:\n  walker: ippo\n  other: {lr: 0.25}\n"
        ),
        "experiment/thesis/hydra.yaml": (
            "# @package _global_\ndefaults:\n  - override /env: multiwalker/shared\n  - override /algorithm: ippo\n"
            "  - _self_\nalgorithm:\n  lr: 0.125\nseed: 4\n"
        ),
    }
    for name, text in files.items():
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "mine"


def written(*overrides: str, config_dir: Path | None = None) -> dict[str, object]:
    return Experiment.compose(*overrides, config_dir=str(config_dir) if config_dir else None).to_json()


def test_names_choose_parts_and_paths_set_options() -> None:
    composed = Experiment.compose(
        *(ENV, "algorithm=mappo", "algorithm.lr=3e-4", "model=gru", "model.hidden=[64,32]", "frames=1_000_000"),
        *("algorithms.adversary=mappo", "algorithms.agent=ippo", "algorithms.agent.lr=1e-3", "models.speaker=gru"),
    ).to_json()
    assert composed["env"]["name"] == "pettingzoo/multiwalker"
    assert (composed["algorithm"]["name"], composed["algorithm"]["lr"]) == ("mappo", 3e-4)
    assert (composed["model"]["name"], composed["model"]["hidden"]) == ("gru", [64, 32])
    assert composed["algorithms"]["adversary"]["name"] == "mappo"
    assert (composed["algorithms"]["agent"]["name"], composed["algorithms"]["agent"]["lr"]) == ("ippo", 1e-3)
    assert composed["models"]["speaker"]["name"] == "gru"
    assert composed["frames"] == 1_000_000
    assert composed["critic"] is None


def test_defaults_are_mappo_and_mlp() -> None:
    composed = Experiment.compose(ENV)
    assert (composed.algorithm.name, composed.model.name) == ("mappo", "mlp")


def test_options_of_a_group_without_a_name_change_what_it_would_have_had() -> None:
    composed = Experiment.compose(
        ENV, "algorithm=ippo", "algorithm.gamma=0.5", "algorithms.a.lr=0.25", "critic.hidden=[3]"
    )
    data = composed.to_json()
    assert data["algorithms"]["a"] == {**data["algorithm"], "lr": 0.25}
    assert data["critic"] == {**data["model"], "hidden": [3]}


def test_an_override_removes_a_part_that_a_file_describes(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "parts.yaml").write_text(
        "env: mpe/simple_spread\ncritic: {name: gru, recurrent_size: 16}\nmodels: {agent: {name: gru}}\n"
    )
    removed = Experiment.compose("experiment=parts", "critic=null", "models.agent=null", config_dir=str(tmp_path))
    assert removed.critic is None and removed.models == {}


def test_interpolation_of_another_option() -> None:
    assert Experiment.compose(ENV, "seed=4", "n_envs=${seed}").n_envs == 4


def test_free_form_options_take_new_keys() -> None:
    config = compose_env("pettingzoo/multiwalker", "env.kwargs.n_walkers=2", "env.kwargs.deep.er=[1,x]")
    assert config.kwargs == {"n_walkers": 2, "deep": {"er": [1, "x"]}}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["algorithm=mappo"],
            r"add env=<name>, such as env=mpe/simple_spread\. Valid: .*mpe/… \(9\), .*pettingzoo/… \(\d+\)",
        ),
        (["env=multiwalkr"], r"no environment 'multiwalkr'; did you mean .*pettingzoo/multiwalker"),
        (["env=multiwalker"], r"did you mean 'pettingzoo/multiwalker'"),
        ([ENV, "algorithm=mapo"], r"no algorithm 'mapo'; did you mean 'mappo'"),
        ([ENV, "models.walker=grru"], r"no model 'grru'; did you mean 'gru'"),
        ([ENV, "algorithm.lrr=1"], r"'algorithm.lrr'.*; did you mean 'algorithm.lr'"),
        ([ENV, "algorithms.a.lrr=1"], r"'algorithms.a.lrr'.*; did you mean 'algorithms.a.lr'"),
        ([ENV, "algoritm=mappo"], r"no option 'algoritm'; did you mean 'algorithm'"),
        ([ENV, "algorithm.lr=-1"], r"algorithm.lr must be more than 0; got -1"),
        ([ENV, "algorithm.lr=fast"], r"algorithm.lr must be a number; got 'fast'"),
        ([ENV, "algorithm.lr.x=1"], r"algorithm.lr"),
        (["env=mpe/simple_spread", "algorithm.lr.x=1"], r"algorithm.lr"),  # tuned
        ([ENV, "frames=0"], r"frames must be at least 1 frame; got 0"),
        ([ENV, "seed=0,1,2"], r"'seed=0,1,2' describes several experiments"),
        ([ENV, "algorithm=mappo,ippo"], r"describes several experiments"),
        ([ENV, "seed=range(3)"], r"describes several experiments"),
        ([ENV, "frames"], r"cannot read 'frames' as key=value, .*: it has no '='"),
        (["mine.yaml"], r"it has no '='\. The experiment of a YAML file is experiment=NAME"),
        ([ENV, "~frames"], r"options cannot be deleted"),
        ([ENV, "algorithm.name=ippo"], r"use algorithm=<name>"),
        ([ENV, "model@critic=gru"], r"instead of '@'"),
        ([ENV, "algorithm=3"], r"algorithm takes a name"),
        ([ENV, "n_envs=${sed}"], r"Interpolation key 'sed' not found"),
        ([ENV, "experiment=x"], r"no experiment 'x'"),
        (["env=pettingzoo/custom"], r"env.entry_point has no default and must be given"),
    ],
)
def test_errors_suggest_the_nearest_names(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.compose(*overrides)


def test_a_variant_of_a_nested_environment(conf: Path) -> None:
    base = written(ENV)["env"]
    assert isinstance(base, dict)
    assert written("env=multiwalker/shared", config_dir=conf)["env"] == {**base, "kwargs": {"shared_reward": True}}
    both = {"shared_reward": True, "n_walkers": 2}
    assert written("env=multiwalker/two", config_dir=conf)["env"] == {**base, "kwargs": both}
    assert written("env=multiwalker/absolute", config_dir=conf)["env"] == {**base, "max_steps": 7}
    assert written("env=multiwalker/paired", config_dir=conf)["env"] == {**base, "max_steps": 8}
    assert written("env=named", "frames=99", config_dir=conf)["env"] == {**base, "max_steps": 99}
    over = written("env=multiwalker/two", "env.kwargs.n_walkers=5", config_dir=conf)["env"]
    assert over == {**base, "kwargs": {**both, "n_walkers": 5}}


def test_variants_of_algorithms_and_models(conf: Path) -> None:
    composed = Experiment.compose(ENV, "algorithms.a=careful", "critic=deep/wide", config_dir=str(conf)).to_json()
    assert composed["algorithms"]["a"] == {**composed["algorithm"], "lr": 1e-5}
    assert composed["critic"] == {**composed["model"], "hidden": [512, 512]}


def test_whole_experiments(conf: Path) -> None:
    plain = Experiment.compose("experiment=plain", "seed=3", config_dir=str(conf)).to_json()
    assert (plain["frames"], plain["seed"], plain["env"]["kwargs"]["n_walkers"]) == (77, 3, 2)
    assert (plain["algorithm"]["name"], plain["algorithm"]["lr"], plain["algorithm"]["gamma"]) == ("mappo", 1e-5, 0.5)
    assert plain["model"]["hidden"] == [512, 512]
    assert plain["algorithms"]["walker"]["name"] == "ippo"
    assert plain["algorithms"]["other"] == {**plain["algorithm"], "lr": 0.25}
    hydras = Experiment.compose("experiment=thesis/hydra", config_dir=str(conf)).to_json()
    assert (hydras["algorithm"]["name"], hydras["algorithm"]["lr"], hydras["seed"]) == ("ippo", 0.125, 4)
    assert hydras["env"]["kwargs"] == {"shared_reward": True}
    over = Experiment.compose("experiment=plain", "algorithms.walker=mappo", "env=mpe/simple", config_dir=str(conf))
    assert (over.algorithms["walker"].name, over.env.name) == ("mappo", "mpe/simple")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("misspelt", r"'env.max_stps'.*; did you mean 'env.max_steps'"),
        ("nothing", r"nothing.yaml: a variant needs exactly one base"),
        ("missing", r"missing.yaml: no env 'pettingzoo/multiwalkr'; did you mean 'pettingzoo/multiwalker'"),
        ("circle", r"circular bases, circle on circle2 on circle"),
        ("broken", r"broken.yaml cannot be read as YAML: while parsing a flow sequence"),
        ("text", r"text.yaml: defaults must be a list, such as `defaults: \[.*\]`; got 'mpe/simple_spread'"),
        ("none", r"none.yaml: defaults must be a list, .*; got None"),
        ("itself", r"itself.yaml: 'itself' is its own base"),
        ("multiwalker/sharde", r"did you mean 'multiwalker/shared'"),
    ],
)
def test_a_variant_that_cannot_be_used_says_why(conf: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.compose(f"env={name}", config_dir=str(conf))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env=misspelt"], r"env/misspelt.yaml, line 2: no option .*'env.max_stps'.*; did you mean 'env.max_steps'"),
        (["env=above"], r"env/misspelt.yaml, line 2: no option .*'env.max_stps'"),
        (["experiment=uses"], r"env/misspelt.yaml, line 2: no option .*'env.max_stps'"),
        (["env=ranged"], r"env/ranged.yaml, line 3: env.max_steps must be at least 1 step; got -1"),
        (["env=ranged", "env.max_steps=-2"], r"^env.max_steps must be at least 1 step; got -2"),
        (["env=absent"], r"env/absent.yaml, line 2: .*Interpolation key 'framez' not found"),
        (["experiment=each"], r"experiment/each.yaml, line 4: .*'algorithms.a.lrr'.*; did you mean 'algorithms.a.lr'"),
        (["experiment=whole"], r"experiment/whole.yaml, line 2: no option 'framez'; did you mean 'frames'"),
        (["experiment=chosen"], r"experiment/chosen.yaml: no part 'envv'; did you mean 'env'"),
    ],
)
def test_errors_in_a_file_name_their_place(conf: Path, overrides: list[str], message: str) -> None:
    files = {
        "env/above.yaml": "defaults: [misspelt]\nkwargs: {n_walkers: 2}\n",
        "env/ranged.yaml": "defaults: [pettingzoo/multiwalker]\n\nmax_steps: -1\n",
        "env/absent.yaml": "defaults: [pettingzoo/multiwalker]\nmax_steps: ${framez}\n",
        "experiment/uses.yaml": "env: misspelt\n",
        "experiment/each.yaml": "env: mpe/simple_spread\nalgorithms:\n  a: {name: ippo,\n    lrr: 3}\n",
        "experiment/whole.yaml": "env: mpe/simple_spread\nframez: 3\n",
        "experiment/chosen.yaml": "defaults:\n  - override /envv: mpe/simple_spread\n",
    }
    for name, text in files.items():
        (conf / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        written(*overrides, config_dir=conf)


def test_a_variant_must_not_hide_a_registered_name(conf: Path) -> None:
    (conf / "algorithm" / "mappo.yaml").write_text("name: ippo\n")
    with pytest.raises(ConfigError, match=r"mappo.yaml: 'mappo' is already a registered algorithm"):
        Experiment.compose(ENV, config_dir=str(conf))


def test_where_the_folder_is_looked_up(conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError):
        Experiment.compose("env=multiwalker/shared")
    monkeypatch.setenv("MARLNB_CONFIG_DIR", str(conf))
    assert Experiment.compose("env=multiwalker/shared").env.name == "pettingzoo/multiwalker"
    monkeypatch.setenv("MARLNB_CONFIG_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"no folder of configurations at .*nowhere' \(from MARLNB_CONFIG_DIR\)"):
        Experiment.compose(ENV)
    monkeypatch.delenv("MARLNB_CONFIG_DIR")
    conf.rename(tmp_path / "conf")
    assert Experiment.compose("env=multiwalker/shared").env.name == "pettingzoo/multiwalker"
    with pytest.raises(ConfigError, match="no folder of configurations at 'else'"):
        Experiment.compose(ENV, config_dir="else")
    with pytest.raises(ConfigError, match="no folder of configurations at 'elseelse"):
        Experiment.compose(ENV, config_dir="else" * 1000)


def test_a_chain_of_bases_without_end(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    for k in range(200):
        (tmp_path / "env" / f"v{k}.yaml").write_text(f"defaults: [v{k + 1}]\nmax_cycles: {k}\n")
    (tmp_path / "env" / "v200.yaml").write_text("defaults: [mpe/simple]\n")
    assert Experiment.compose("env=v180", config_dir=str(tmp_path)).to_json()["env"]["max_cycles"] == 180
    with pytest.raises(ConfigError, match=r"env/v0.yaml: it has more than 30 bases, each on the next"):
        Experiment.compose("env=v0", config_dir=str(tmp_path))


def test_a_hydra_application_around_it_is_left_as_it_was(conf: Path) -> None:
    store = ConfigStore.instance()
    store.store(name="mine", node={"defaults": ["_self_", {"env": "own"}], "x": 1})
    store.store(group="env", name="own", node={"y": 2})
    with initialize(config_path=None, version_base="1.3"):
        before = GlobalHydra.instance().hydra
        assert Experiment.compose("env=multiwalker/two", config_dir=str(conf)).env.name == "pettingzoo/multiwalker"
        with pytest.raises(ConfigError):
            Experiment.compose(ENV, "seed=${nothing}")
        assert GlobalHydra.instance().hydra is before
        assert hydra_compose("mine") == {"x": 1, "env": {"y": 2}}
    assert not GlobalHydra.instance().is_initialized()


def test_it_leaves_no_trace_and_warns_of_nothing(tmp_path: Path, conf: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (Experiment.compose("experiment=plain", config_dir=str(conf)) for _ in range(2))
    assert first == second
    assert Path.cwd() == tmp_path and sorted(tmp_path.rglob("*")) == before
    assert not GlobalHydra.instance().is_initialized()
    assert "HYDRA_FULL_ERROR" not in os.environ


def test_threads_compose_side_by_side() -> None:
    seeds: dict[int, int] = {}

    def one(seed: int) -> None:
        seeds[seed] = Experiment.compose(ENV, f"seed={seed}").seed

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seeds == {seed: seed for seed in range(6)}


def test_the_parts_that_overrides_name(conf: Path) -> None:
    parts = chosen_parts(["env=multiwalker/two", "algorithms.a=careful", "seed=1"], str(conf))
    assert {part: kind.name for part, kind in parts.items()} == {
        "env": "pettingzoo/multiwalker",
        "algorithms.a": "mappo",
    }
