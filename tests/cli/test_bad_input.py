"""Bad input to `marlnb train` ends with 2, one message without a traceback, and no folder made."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.cli import main
from marlnb.errors import EnvBuildError
from marlnb.experiment import Experiment
from marlnb.training.train import train

ENTRY = "env=pettingzoo/custom env.entry_point=tests.envs.sample_envs"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("env=pettingzoo/simple_spread env.kwargs.max_cycle=1", "'max_cycle'; did you mean 'max_cycles'"),
        ("env=mpe/simple_spread env.max_cycle=1", "'env.max_cycle' of environment 'mpe/simple_spread'; did you"),
        (f"{ENTRY}:passing_on env.kwargs.keep_dead=1", "'keep_dead'; did you mean 'keeps_dead'"),
        ("env=no_such_module:Env", "cannot import 'no_such_module'"),
        ("env=pettingzoo/custom env.entry_point=no_such_module:env", "cannot import 'no_such_module'"),
        ("env=torchrl/custom env.entry_point=no_such_module:env", "cannot import 'no_such_module'"),
        (f"{ENTRY}:Unseeded", "PettingZoo's API requires reset(seed=None, options=None)"),
        ("env=pettingzoo/simple_spread env.groups={a:[agent_0]}", "must contain each of ['agent_0', 'agent_1'"),
    ],
)
def test_an_environment_that_cannot_be_had(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main(["train", *words.split(), "n_envs=2", "frames=100", "--quiet", f"run={folder}"]) == 2
    errors = capsys.readouterr().err
    assert message in errors and "Traceback" not in errors
    assert not folder.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "algorithm=qmix env.continuous_actions=true algorithm.learning_starts=0",
            "it takes discrete. Algorithms for continuous actions: a2c, iddpg, ippo, isac",
        ),
        (
            "algorithm=maddpg model=gru",
            "got gru. Algorithms for recurrent networks: a2c, ippo, iql, maa2c, mappo, qmix, vdn",
        ),
        ("model=cnn", "mappo for group 'agent' of mpe/simple_spread, whose agents observe (18,): model 'cnn' reads"),
        ("algorithm=iql algorithm.batch_size=20 algorithm.buffer_frames=10", "batch_size=20 is larger than the"),
        ("algorithm=iql", "iql for every group would learn nothing: for the first"),
        ("algorithm=matd3 algorithm.learning_starts=101 env.continuous_actions=true", "101 frames (algorithm.learning"),
        ("algorithms.agent=iql", "algorithms.agent.learning_starts=0 to 50; a group that is meant to act at random"),
        ("device=gpu", "no device 'gpu'; valid: cpu"),
        ("device=meta", "device 'meta' cannot be trained on; valid: cpu"),
        (
            "algorithm=frozen algorithm.run=nowhere",
            "frozen for group 'agent' of mpe/simple_spread: nowhere is not a run",
        ),
        ("algorithm=scripted algorithm.function=os:getcwd", "'os' is a module of Python itself"),
    ],
)
def test_what_does_not_go_together(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    given = ["env=mpe/simple_spread", "n_envs=2", "rollout_steps=5", "frames=100", *words.split()]
    assert main(["train", *given, "--quiet", f"run={folder}"]) == 2
    errors = capsys.readouterr().err
    assert message in errors and "Traceback" not in errors
    assert not folder.exists()


def test_several_folders_of_one_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "env=mpe/simple_spread", "frames=100", f"run={tmp_path}/a", f"run={tmp_path}/b"]) == 2
    assert f"expected one run=FOLDER; got run={tmp_path}/a run={tmp_path}/b" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", ["info", "runs", "evaluate", "stop", "train env=mpe/simple_spread --quiet run="])
def test_the_home_of_an_unknown_user(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = "~no-such-user/x"
    assert main([*words.split(), path] if "=" not in words else f"{words}{path}".split()) == 2
    errors = capsys.readouterr().err
    assert f"{path!r}: this machine does not know the home folder of ~no-such-user" in errors
    assert "Traceback" not in errors


def test_pictures_of_an_environment_built_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    given = ["env=pettingzoo/simple_spread", "env.workers=0", "n_envs=2", "rollout_steps=25", "frames=50"]
    assert main(["train", *given, "--quiet", f"run={folder}"]) == 0
    capsys.readouterr()
    assert main(["record", str(folder), "--episodes", "2", "--frames", "1", "--quiet"]) == 2
    assert "was built without rendering; build it with render=True (env.render=true)" in capsys.readouterr().err
    assert list((folder / "recordings").glob("*.h5")) == []


def test_an_error_of_a_third_party_leaves_no_folder_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the corrected experiment may have the same name."""

    def build(self: object, n_envs: int, device: str = "cpu") -> None:
        raise ZeroDivisionError("of a user's own EnvConfig")

    experiment = Experiment.compose("env=matrix/climbing", "algorithm=ippo", "frames=64", "n_envs=2")
    with monkeypatch.context() as patch:
        patch.setattr(type(experiment.env), "build", build)
        with pytest.raises(EnvBuildError, match="ZeroDivisionError: of a user's own EnvConfig"):
            train(experiment, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    assert train(experiment, tmp_path / "run", progress=False).status()["state"] == "complete"
