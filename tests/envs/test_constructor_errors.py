"""Arguments that a constructor does not take, in every kind of environment, in this process and in workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marlnb.composition.compose import compose_env
from marlnb.envs.custom import pettingzoo_vector_env
from marlnb.envs.torchrl.config import torchrl_vector_env
from marlnb.errors import ConfigError, EnvBuildError, EnvError, UnknownNameError
from tests.envs import sample_envs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("name", "wrong", "meant", "also"),
    [
        ("simple_spread", "max_cycle", "max_cycles", "local_ratio"),  # parallel_env(**kwargs) -> raw_env(...)
        ("multiwalker", "n_walker", "n_walkers", "terrain_length"),  # the keyword is refused two classes further in
    ],
)
def test_pettingzoo(name: str, wrong: str, meant: str, also: str, workers: int) -> None:
    config = compose_env(f"pettingzoo/{name}", f"env.kwargs.{wrong}=1", f"env.workers={workers}")
    message = rf"^pettingzoo/{name}: its constructor has no keyword argument '{wrong}'; did you mean '{meant}'"
    with pytest.raises(EnvBuildError, match=message) as caught:
        config.build(2)
    listed = str(caught.value).partition("Valid: ")[2].split(", ")
    assert {meant, also} <= set(listed) and "self" not in listed and "Traceback" not in str(caught.value)


def test_vmas_does_not_ignore_unknown_arguments() -> None:
    pytest.importorskip("vmas")
    message = r"^vmas/navigation: .*no keyword argument 'n_agent'; did you mean 'n_agents'.*Valid: .*shared_rew"
    with pytest.raises(EnvBuildError, match=message):
        compose_env("vmas/navigation", "env.kwargs.n_agent=2").build(1)
    with pytest.raises(EnvBuildError, match="no keyword argument 'num_envs'"):
        compose_env("vmas/navigation", "env.kwargs.num_envs=2").build(1)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            "kuhn_poker env.kwargs.player=3",
            "openspiel/kuhn_poker: the game has no parameter 'player'; did you mean",
        ),
        (
            "go env.kwargs.size=5",
            "'size'; did you mean .* Valid: board_size, handicap, komi, max_game_length",
        ),
        ("tic_tac_toe env.kwargs.size=5", r"openspiel/tic_tac_toe: the game has no parameter 'size'. Valid: \(none\)"),
        ("kuhn_poker env.kwargs.players=x", "kuhn_poker: its parameter players must be a whole number; got 'x'"),
        (
            "kuhn_poker env.kwargs.players=30",
            r"kuhn_poker rejects {'players': 30}: (.|\n)*max_num_players = 10",
        ),
    ],
)
def test_openspiel_arguments(asked: str, message: str) -> None:
    pytest.importorskip("pyspiel")
    name, word = asked.split()
    with pytest.raises(EnvBuildError, match=message) as caught:
        compose_env(f"openspiel/{name}", word).build(1)
    assert "torchrl" not in str(caught.value)


def test_openspiels_parameters() -> None:
    pytest.importorskip("pyspiel")
    with compose_env("openspiel/kuhn_poker", "env.kwargs.players=3").build(1) as env:
        assert len(env.spec.agents) == 3
    with compose_env("openspiel/go", "env.kwargs.board_size=5", "env.kwargs.komi=7").build(1) as env:
        assert env.spec.groups[0].action.n == (26,)


def _counters(ends: int = 3) -> Any:
    raise AssertionError("not called")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: pettingzoo_vector_env(sample_envs.Scripted, 1, workers=0, kwargs={"keep_dead": True}),
            "Scripted: its constructor has no keyword argument 'keep_dead'; did you mean 'keeps_dead'?",
        ),
        (
            lambda: pettingzoo_vector_env(sample_envs.passing_on, 1, workers=1, kwargs={"keep_dead": True}),
            "no keyword argument 'keep_dead'; did you mean 'keeps_dead'? Valid: action_space, keeps_dead, speed",
        ),
        (
            lambda: pettingzoo_vector_env(sample_envs.in_need, 1, workers=1, kwargs={"size": 3}),
            "in_need: its constructor needs 'colour'; got {'size': 3}. Valid: size, colour, speed",
        ),
        (
            lambda: torchrl_vector_env(_counters, 1, kwargs={"end": 4}),
            "_counters: its constructor has no keyword argument 'end'; did you mean 'ends'? Valid: ends",
        ),
        (
            lambda: pettingzoo_vector_env(sample_envs.misconfigured, 1, workers=1),
            "the two sizes exclude one another",
        ),
    ],
)
def test_ones_own(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(EnvBuildError) as caught:
        build()
    assert message in str(caught.value) and "Traceback" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:make", "pettingzoo/custom: cannot import 'no_such_module'"),
        ("tests.envs.sample_envs:Scriptd", "pettingzoo/custom: no name 'Scriptd' in .*; did you mean 'Scripted'"),
        ("tests.envs.sample_envs:__name__", "must be a function or class that returns an environment; got 'tests"),
    ],
)
def test_import_paths(path: str, message: str, workers: int) -> None:
    config = compose_env("pettingzoo/custom", f"env.entry_point={path}", f"env.workers={workers}")
    with pytest.raises(EnvBuildError, match=message) as caught:
        config.build(1)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_missing_library_and_a_missing_render_mode(workers: int) -> None:
    config = compose_env("pettingzoo/custom", f"env.entry_point={__name__}:_lacks", f"env.workers={workers}")
    with pytest.raises(EnvBuildError, match=r"custom needs 'shimmy', .* pip install shimmy open_spiel$"):
        config.build(1)
    entry = "env.entry_point=tests.envs.sample_envs:passing_on"
    config = compose_env("pettingzoo/custom", entry, "env.render=true", f"env.workers={workers}")
    with pytest.raises(EnvBuildError, match=r"render=True \(env.render=true\) passes render_mode='rgb_array'"):
        config.build(1)


def _lacks() -> Any:
    """As PettingZoo's hanabi says it."""
    try:
        raise ModuleNotFoundError("No module named 'shimmy'", name="shimmy.openspiel_compatibility")
    except ImportError as error:
        raise ImportError("Install it with: pip install open_spiel") from error


HIDING = [
    ("pettingzoo", "env=pettingzoo/multiwalker"),
    ("mpe2", "env=pettingzoo/simple_spread"),
    ("pettingzoo", "env=pettingzoo/custom env.entry_point=pettingzoo.sisl.multiwalker_v9:parallel_env"),
]
RUN_EACH = """
import os, runpy, sys
import marlnb, torch
assert not {"pettingzoo", "mpe2"} & sys.modules.keys()
for file in sys.argv[1:]:  # each in a fork, as `python FILE` in its folder
    if os.fork() == 0:
        os.chdir(os.path.dirname(file))
        sys.argv, sys.path[0] = [file], os.path.dirname(file)
        os.dup2(os.open("errors", os.O_WRONLY | os.O_CREAT), 2)
        runpy.run_path(file, run_name="__main__")
        os._exit(0)
    os.wait()
"""


def test_files_of_ones_own_that_hide_a_library(tmp_path: Path) -> None:
    files = [tmp_path / str(k) / f"{module}.py" for k, (module, _) in enumerate(HIDING)]
    for file, (_, words) in zip(files, HIDING):
        file.parent.mkdir()
        file.write_text(f"import marlnb as mnb\nmnb.Experiment.compose(*{words.split()!r}).env.build(1)\n")
    subprocess.run([sys.executable, "-c", RUN_EACH, *map(str, files)], check=True, timeout=100)
    for file, (module, _) in zip(files, HIDING):
        errors = (file.parent / "errors").read_text()
        assert f"the file {file} has the name of the installed library '{module}'" in errors.splitlines()[-1]
        assert "pip install" not in errors


def test_an_import_path_in_place_of_a_name() -> None:
    with pytest.raises(ConfigError, match=r"cannot import 'no_such_module' .* in the current folder"):
        compose_env("no_such_module:Env")
    with pytest.raises(ConfigError, match=r"env=pettingzoo/custom env\.entry_point=tests\.envs\.sample_envs:Scripted"):
        compose_env("tests.envs.sample_envs:Scripted")


def test_kinds_of_errors_cross_processes() -> None:
    """An error raised in a worker keeps its class, as when this process steps the envs."""
    for workers in (0, 1):
        with pytest.raises(EnvBuildError, match="have different observation spaces") as caught:
            pettingzoo_vector_env(sample_envs.Mixed, 1, workers=workers)
        assert isinstance(caught.value, ConfigError) and isinstance(caught.value, EnvError)
        env = pettingzoo_vector_env(sample_envs.Picky, 1, workers=workers)
        with pytest.raises(UnknownNameError, match=r"Picky: env 0 failed while being reset .*: no level 'seven'"):
            env.reset(0)
