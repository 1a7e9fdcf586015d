from __future__ import annotations

import json
import multiprocessing
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from marlnb.errors import CheckpointError, ConfigError, RunError
from marlnb.experiment import Experiment
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, LabelSpec, ObservationSpec
from marlnb.training.runs.lock import RunLock, is_locked
from marlnb.training.runs.run import Run
from marlnb.training.runs.spec_file import spec_from_json, spec_to_json
from marlnb.training.train import train
from marlnb.training.trainer import Trainer
from tests.training.toys import count_experiment


def test_a_new_folder_is_private_and_opens_with_nothing_else(tmp_path: Path) -> None:
    experiment = count_experiment()
    run = Run.create(tmp_path / "deep" / "r", experiment)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    opened = Run.open(run.path)
    assert opened.experiment == experiment and opened.spec == experiment.env.build(1).spec
    assert opened.status() == {"state": "created", "frames": 0}
    assert opened.checkpoints == [] and opened.recordings == {} and len(opened.metrics()) == 0
    assert "created" in repr(opened) and "return" not in opened._repr_html_()
    with pytest.raises(CheckpointError, match=r"no checkpoint 'last' in .*: it has no complete checkpoints$"):
        opened.checkpoint()


def test_a_folder_with_anything_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "notebook.ipynb").touch()
    Run.create(tmp_path / "r", count_experiment())
    with pytest.raises(RunError, match=r"exists already and is a run: .*`marlnb resume .*r`"):
        Run.create(tmp_path / "r", count_experiment())
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").touch()
    with pytest.raises(RunError, match=r"holds thesis\.tex"):
        Run.create(tmp_path / "home", count_experiment())
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be created"):
        Run.create(tmp_path / "file", count_experiment())


def test_opening_what_is_no_run_names_the_runs_near_it(tmp_path: Path) -> None:
    Run.create(tmp_path / "spread", count_experiment())
    with pytest.raises(RunError, match=r"not a run folder.*runs near it: .*/spread"):
        Run.open(tmp_path / "spraed")
    (tmp_path / "spread" / "experiment.json").write_text("{")
    with pytest.raises(RunError, match=r"experiment\.json cannot be read"):
        Run.open(tmp_path / "spread")


def test_metrics_are_cut_at_the_checkpoint_and_forget_a_half_written_line(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "r", count_experiment())
    for iteration in (1, 2, 3):
        run.append_metrics({"iteration": iteration, "returns": {"a": iteration * 1.5}})
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 4, "ret')
    assert run.metrics()["returns/a"].tolist() == [1.5, 3.0, 4.5]
    run.cut_metrics(2)
    run.append_metrics({"iteration": 3, "returns": {"a": 9.0}})
    assert run.metrics()["returns/a"].tolist() == [1.5, 3.0, 9.0]
    (run.path / "metrics.jsonl").write_text('{"iteration": 1\n{"iteration": 2}\n')
    with pytest.raises(RunError, match="line 1, is damaged"):
        run.metrics()


def test_checkpoints_are_chosen_by_name_or_iteration(tmp_path: Path) -> None:
    run = train(count_experiment("keep_checkpoints=2"), tmp_path / "r", progress=False)
    iterations = [checkpoint.iteration for checkpoint in run.checkpoints]
    assert iterations[-2:] == [18, 20] and len(iterations) <= 3
    assert run.checkpoint().iteration == run.checkpoint("20").iteration == run.checkpoint(20).iteration == 20
    for group in ("a", "b"):
        highest = max(checkpoint.returns[group] for checkpoint in run.checkpoints)
        assert run.checkpoint(f"best:{group}").returns[group] == highest
    with pytest.raises(CheckpointError, match=r"rewarded differently.*valid: 'best:a' or 'best:b', 'last' or an iter"):
        run.checkpoint("best")
    with pytest.raises(ConfigError, match="no group 'c' of toy/count"):
        run.checkpoint("best:c")
    assert "best" not in repr(run.checkpoint()) and f"mean return a {run.checkpoint().returns['a']:.4g}" in repr(
        run.checkpoint()
    )
    assert "checkpoints" in run._repr_html_() and "18, 20" in run._repr_html_()
    with pytest.raises(CheckpointError, match=r"valid: last, best or one of: .*18, 20"):
        run.checkpoint(5)
    with pytest.raises(CheckpointError, match="no checkpoint 'newest'"):
        run.checkpoint("newest")


def test_no_checkpoint_is_best_before_an_episode_ended(tmp_path: Path) -> None:
    experiment = Experiment.compose("env=mpe/simple_spread", "algorithm=ippo", "n_envs=4", "rollout_steps=10")
    with Trainer(experiment, Run.create(tmp_path / "r", experiment)) as trainer:
        next(trainer)
    with pytest.raises(CheckpointError, match=r"'best' in .*no episode had ended, .*; valid: last or one of: 1"):
        Run.open(tmp_path / "r").checkpoint("best")


def test_a_lock_keeps_other_processes_out_until_its_holder_dies(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from marlnb.training.runs.lock import RunLock\n"
    code += "lock = RunLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(100)"
    path = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    assert is_locked(path)
    with pytest.raises(RunError, match=f"by process {holder.pid} on"):
        RunLock(path)
    holder.kill()
    holder.communicate()
    assert not is_locked(path)
    RunLock(path).release()


def test_where_there_are_no_locks_a_living_holder_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import fcntl

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    path = tmp_path / "lock"
    lock = RunLock(path)
    assert is_locked(path) and json.loads(path.read_text())["pid"] == os.getpid()
    with pytest.raises(RunError, match="being trained already"):
        RunLock(path)
    lock.release()
    assert not is_locked(path)
    gone = multiprocessing.get_context("spawn").Process()
    gone.start()
    gone.join()
    path.write_text(json.dumps({"pid": gone.pid, "host": os.uname().nodename}))
    assert not is_locked(path)
    path.write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    assert is_locked(path)
    os.utime(path, (0, 0))
    assert not is_locked(path)


def test_a_spec_comes_back_equal(tmp_path: Path) -> None:
    spec = EnvSpec(
        "x",
        (
            GroupSpec(
                "a", ("a_0",), ObservationSpec((2, 3), "uint8"), ActionSpec("continuous", low=(0.0,), high=(1.0,))
            ),
            GroupSpec("b", ("b_0", "b_1"), ObservationSpec((1,), names=("x",)), ActionSpec("discrete", (2,)), True),
        ),
        state_shape=(4,),
        max_steps=25,
        labels=(LabelSpec("goal", "a", ("red", "blue")),),
    )
    assert spec_from_json(json.loads(json.dumps(spec_to_json(spec)))) == spec
    with pytest.raises(RunError, match="malformed"):
        spec_from_json({"name": "x"})


def test_an_environment_that_changed_is_refused(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "r", count_experiment())
    spec = run.spec
    run.write_spec(spec)
    run.write_spec(spec)
    other = EnvSpec("toy/count", spec.groups, max_steps=9)
    with pytest.raises(RunError, match="has changed since this run started"):
        Run.open(run.path).write_spec(other)
