"""Errors in a user's own code: whose code it is, and the calls in it alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marlnb.cli import main
from marlnb.plugins import user_code

MINE = """\
from dataclasses import dataclass

import marlnb as mnb
import torch


def deeper(value):
    return torch.zeros(3).reshape(value)


@dataclass(frozen=True)
class Broken(mnb.EnvConfig):
    def build(self, n_envs, device="cpu"):
        return deeper(2)


@dataclass(frozen=True)
class Nothing(mnb.EnvConfig):
    def build(self, n_envs, device="cpu"):
        return None


def policy(observation, action_mask, group, generator):
    return observation["x"] if observation.sum() > 1e9 else deeper(2)


def make(size=3):
    return deeper(2)


@dataclass(frozen=True)
class Later(mnb.EnvConfig):
    def build(self, n_envs, device="cpu"):
        env = mnb.Experiment.compose("env=mpe/simple").env.build(n_envs, device)
        env.step = lambda actions: deeper(2)
        return env
"""
SCRIPTED = "env=mpe/simple_spread algorithm=scripted algorithm.function"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"mine": MINE, "unready": "x = 1\ny = x +\n", "raises": "x = 1\ny = x.z\n"}.items():
        (tmp_path / f"{name}_{tmp_path.name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("env=mine:Broken", 2, "mine:Broken: Broken.build raised RuntimeError: shape '[2]' is invalid"),
        (f"{SCRIPTED}=mine:policy", 2, "mine:policy, which acts for group 'agent', raised RuntimeError: shape '[2]'"),
        ("env=pettingzoo/custom env.entry_point=mine:make env.workers=0", 2, "the constructor, called with {}, raised"),
        ("env=pettingzoo/custom env.entry_point=mine:make env.workers=1", 2, "the constructor, called with {}, raised"),
        ("env=mine:Later", 1, "code that marlnb called raised RuntimeError: shape '[2]'"),
    ],
)
def test_whose_code_it_is(
    words: str, code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = words.replace("mine:", f"mine_{tmp_path.name}:")
    given = [*words.split(), "algorithm=ippo"] if "scripted" not in words else words.split()
    assert main(["train", *given, "n_envs=2", "rollout_steps=5", "frames=20", "--quiet", "run=run"]) == code
    errors = capsys.readouterr().err
    assert message.replace("mine:", f"mine_{tmp_path.name}:") in errors
    assert f"in deeper ({tmp_path}/mine_{tmp_path.name}.py, line 8)" in errors
    assert "Traceback" not in errors and "/marlnb/" not in errors and len(errors.splitlines()) < 12
    if "scripted" in words or "Later" in words:  # it had begun
        assert json.loads(Path("run/status.json").read_text())["state"] == "failed"
    else:
        assert not Path("run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("env=mine:Nothing", "Nothing.build must return a VectorEnv; it returned None"),
        ("env=unready:Env", "it raised SyntaxError: invalid syntax ("),
        ("env=raises:Env", "it raised AttributeError: 'int' object has no attribute 'z', in <module> ("),
    ],
)
def test_what_cannot_be_used(words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", words.replace(":", f"_{tmp_path.name}:"), "algorithm=ippo", "--quiet", "run=run"]) == 2
    errors = capsys.readouterr().err
    assert message in errors and "importlib" not in errors and not Path("run").exists()


def test_of_many_calls_the_middle_ones_are_left_out() -> None:
    def down(depth: int) -> int:
        return 1 // depth if depth == 0 else further_down(depth - 1)

    def further_down(depth: int) -> int:
        return down(depth)

    with pytest.raises(ZeroDivisionError) as caught:
        down(40)
    text = user_code.describe_error(caught.value)
    assert text is not None and text.startswith("ZeroDivisionError: integer division or modulo by zero, in down (")
    assert text.count("File ") == 6 and "... 76 calls omitted ..." in text  # of 82, the test's own among them


def test_errors_in_libraries_alone_are_described_only_on_request() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    error = caught.value.with_traceback(caught.value.__traceback__.tb_next)  # type: ignore[union-attr]
    assert user_code.describe_error(error) is None
    description = user_code.describe_error(error, or_library=True)
    assert description is not None and ", in raw_decode (" in description and "test_user_code" not in description
