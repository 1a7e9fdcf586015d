"""Several training runs by one command: planned, trained, resumed and failed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from marlnb.batch.trainings import launch
from marlnb.batch.trainings.launch import start_worker
from marlnb.batch.trainings.train_all import default_jobs, plan_trainings, swept_values, train_all
from marlnb.cli import main
from marlnb.errors import BatchError, ConfigError, RunError
from marlnb.training.runs.metrics_rows import read_rows
from marlnb.training.runs.run import Run
from tests.training import toys  # noqa: F401  # registers toy/count

SMALL = (
    *("env=toy/count", "algorithm.epochs=1", "algorithm.minibatch_frames=32", "model.hidden=[8]", "n_envs=4"),
    *("rollout_steps=8", "frames=64", "threads=1"),
)
MPE = ("env=mpe/simple_spread", *SMALL[1:])  # found by other processes


def test_values_are_hydras_sweeps_and_ranges() -> None:
    words = ["algorithm=ippo,mappo", "seed=0..3", "n_envs=range(2,6,2)", "model.hidden=[8,8],[16]", "device='a,b'"]
    assert swept_values(words) == {
        "algorithm": ["ippo", "mappo"],
        "seed": ["0", "1", "2", "3"],
        "n_envs": ["2", "4"],
        "model.hidden": ["[8,8]", "[16]"],
    }
    assert swept_values(["seed=0..4..2,9"]) == {"seed": ["0", "2", "4", "9"]}
    with pytest.raises(ConfigError, match=r"seed=3\.\.1: expected FIRST\.\.LAST"):
        swept_values(["seed=3..1"])
    with pytest.raises(ConfigError, match="seed= is given twice"):
        swept_values(["seed=0,1", "seed=2,3"])


def test_each_combination_is_composed_before_anything_starts() -> None:
    planned = plan_trainings([*SMALL, "algorithm=ippo,mappo", "seed=0..1"])
    assert [each.folder for each in planned] == [
        *("algorithm=ippo,seed=0", "algorithm=ippo,seed=1"),
        *("algorithm=mappo,seed=0", "algorithm=mappo,seed=1"),
    ]
    assert [(each.experiment.algorithm.name, each.experiment.seed) for each in planned[1:3]] == [
        ("ippo", 1),
        ("mappo", 0),
    ]
    assert [each.folder for each in plan_trainings([*SMALL, "env=toy/count,matrix/two_step"])] == [
        "env=toy.count",
        "env=matrix.two_step",
    ]
    with pytest.raises(ConfigError, match="algorithm=mapo: no algorithm 'mapo'; did you mean 'mappo'"):
        plan_trainings([*SMALL, "algorithm=ippo,mapo"])
    assert plan_trainings([*SMALL, "model=mlp,gru", "algorithm.sequence_length=8"])  # gru has a state
    with pytest.raises(BatchError, match="given twice"):
        plan_trainings([*SMALL, "seed=1,1"])


def test_a_command_trains_all_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", *SMALL, "algorithm=ippo,mappo", "seed=0..1"]
    assert main([*words, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.count("missing") == 4 and "4 runs in runs/count-algorithm-seed" in out and not Path("runs").exists()
    assert main(words) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    header = "algorithm seed state trained_frames minutes exploring return of a exploring return of b"
    assert " ".join(lines[0].split()) == header
    assert [line.split()[:4] for line in lines[1:5]] == [
        [algorithm, seed, "complete", "64"] for algorithm in ("ippo", "mappo") for seed in ("0", "1")
    ]
    assert lines[5] == "runs/count-algorithm-seed: 4 of 4 runs complete"
    assert "[4/4] algorithm=mappo,seed=1: complete" in captured.err
    folder = Path("runs/count-algorithm-seed")
    assert Run.open(folder / "algorithm=mappo,seed=1").experiment.seed == 1
    assert len(json.loads((folder / "trainings.json").read_text())["trainings"]) == 4
    written = {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.jsonl")}
    assert len(written) == 4
    assert main(["train", *SMALL, "algorithm=ippo,mappo", "seed=0..2", "--quiet"]) == 0  # two more
    assert all(
        path.stat().st_mtime_ns == written.get(path, path.stat().st_mtime_ns) for path in folder.rglob("*.jsonl")
    )
    assert capsys.readouterr().out.endswith("6 of 6 runs complete\n")
    assert main([*words, "frames=128"]) == 2 and "frames: 64 there, 128 here" in capsys.readouterr().err


def test_the_table_of_several_lengths_shows_the_length_and_what_was_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a folder that is named from home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ["train", *SMALL[:-2], "threads=1", "frames=64,100", "run=~/all", "--quiet"]
    assert main(words) == 0 and main([*words, "--dry-run"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:4] == ["frames", "state", "trained_frames", "minutes"]
    complete = [line[:3] for line in lines if line[1:2] == ["complete"]]
    assert complete == 2 * [["64", "complete", "64"], ["100", "complete", "128"]]


def test_the_table_has_exploring_and_greedy_returns_in_columns_of_their_own(tmp_path: Path) -> None:
    planned = plan_trainings([*SMALL, "evaluate_every=0,1", "evaluation_episodes=4"])
    rows = train_all(planned, tmp_path / "both", progress=False).rows()
    for row, each in zip(rows, planned, strict=True):
        last = read_rows(tmp_path / "both" / each.folder / "metrics.jsonl")[-1]
        exploring, greedy = (
            {name: row[f"{mode} return of {name}"] for name in ("a", "b") if f"{mode} return of {name}" in row}
            for mode in ("exploring", "greedy")
        )
        assert exploring == last["recent_returns"] and greedy == last["evaluation"]
    assert "greedy return of a" not in rows[0] and rows[1]["greedy return of a"] != rows[1]["exploring return of a"]
    assert not [name for row in rows for name in row if name.startswith("return of")]


def test_the_table_has_the_return_of_each_player_of_a_game(tmp_path: Path) -> None:
    """An evaluation has only the mean of the players, which is always 0."""
    words = ["env=game/disc", *SMALL[1:], "seed=0,1", "evaluate_every=1", "evaluation_episodes=4"]
    row = train_all(plan_trainings(words), tmp_path / "both", progress=False).rows()[0]
    returns = {name: value for name, value in row.items() if "return of" in name}
    assert list(returns) == ["exploring return of player_0", "exploring return of player_1"]
    assert sum(returns.values()) == pytest.approx(0) and returns["exploring return of player_0"]


def test_if_one_fails_the_others_continue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", *SMALL, "env.fail_at=0,12", f"run={tmp_path / 'both'}"]
    assert main([*words, "--quiet"]) == 1
    captured = capsys.readouterr()
    assert "1 of 2 runs complete" in captured.out
    assert "failed: env.fail_at=12: RuntimeError: the toy broke" in captured.err


def test_processes_train_in_parallel_and_the_one_that_plans_needs_no_torch(tmp_path: Path) -> None:
    words = ["train", *MPE, "algorithm=ippo,mappo", f"run={tmp_path / 'both'}"]
    code = (
        "import sys; from marlnb.cli import main; words = sys.argv[1:]; code = main([*words, '--dry-run']); "
        "code = code or main([*words, '--jobs', '2', '--quiet']); sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("missing") == 2 and done.stdout.endswith("2 of 2 runs complete\n")
    assert (tmp_path / "both" / "algorithm=mappo" / "output.log").is_file()


def test_one_that_cannot_start_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with processes that are not parallel; the parallel ones are quick here."""
    (tmp_path / "all" / "seed=1").mkdir(parents=True)
    (tmp_path / "all" / "seed=1" / "notes.txt").write_text("hi")
    (tmp_path / "all" / "trainings.json").write_text("{}")
    monkeypatch.setattr(launch, "start_worker", lambda *_: subprocess.Popen(["true"]))
    result = train_all(plan_trainings([*SMALL, "seed=0..3"]), tmp_path / "all", jobs=2, progress=False)
    assert list(result.failed) == ["seed=1"] and "notes.txt" in result.failed["seed=1"] and not result.stopped
    assert all((tmp_path / "all" / f"seed={seed}" / "experiment.json").exists() for seed in (0, 2, 3))


def test_one_that_cannot_start_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: str, words: object, log: Path, *_: object) -> subprocess.Popen[bytes]:
        log.write_text("no such model\n")
        return subprocess.Popen(["false"])

    words = ["train", *SMALL, "algorithm=ippo,mappo", f"run={tmp_path / 'all'}", "--quiet"]
    assert main([*words, "model=cnn"]) == 1
    with monkeypatch.context() as patch:
        patch.setattr(launch, "start_worker", fail)
        assert main([*words, "model=cnn", "--jobs", "2"]) == 1
    assert {path.name for path in (tmp_path / "all").glob("*/*")} == {"output.log"}
    assert main(words) == 0


def test_an_error_of_the_command_ends_its_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(*_: object) -> subprocess.Popen[bytes]:
        if started:
            raise ZeroDivisionError
        started.append(subprocess.Popen(["sleep", "100"]))
        return started[0]

    monkeypatch.setattr(launch, "start_worker", start)
    try:
        with pytest.raises(ZeroDivisionError):
            train_all(plan_trainings([*SMALL, "seed=0..1"]), tmp_path / "all", jobs=2, progress=False)
        assert started[0].poll() is not None
    finally:
        started[0].kill()
        started[0].wait()


def test_processes_share_the_gpus_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "print_gpu.py").write_text("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    for slot, device, expected in [(0, "cuda", "3"), (1, "cuda", "5"), (2, "cuda", "3"), (0, "cuda:1", "3,5")]:
        log = tmp_path / f"{slot}-{device}.log"
        assert start_worker("print_gpu", [], log, slot, 3, device).wait() == 0
        assert log.read_text() == f"{expected}\n"


def test_bad_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").touch()
    for words, message in [
        ((f"run={tmp_path / 'thesis'}", "seed=0,1"), "it has thesis.tex but no trainings.json; give run= a new folder"),
        (("seed=0,1", "--record", "every_iterations=1"), "--record needs one run"),
        (("--jobs", "2"), "--jobs needs several runs"),
        (("algorithm.sequence_length=8",), "sequence_length=8 has no effect: mlp has no state"),
        (("algorithm.sequence_length=8", "seed=0,1"), "seed=0: algorithm.sequence_length=8 has no effect: mlp has no"),
        (
            ("evolution=pbt", "evaluate_every=1", "--dry-run"),
            "evaluate_every=1 has no effect: with evolution=, members",
        ),
        (("model=gru", "seed=0,1"), "seed=0: mappo: sequence_length=16 must divide rollout_steps=8"),
        (("seed=0,1", "--jobs", "0"), "jobs: expected at least 1"),
    ]:
        assert main(["train", *SMALL, *words]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(RunError):
        train_all(plan_trainings([*SMALL, "seed=0,1"]), tmp_path / "thesis", progress=False)


def test_seeds_train_together_as_ordinary_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "seeds"
    words = ["train", *MPE, "algorithm=ippo", "seeds=3", "seed=5", f"run={folder}", "--jobs", "1", "--quiet"]
    assert main(words) == 0
    assert capsys.readouterr().out.endswith("3 of 3 runs complete\n")
    runs = [Run.open(folder / f"seed={seed}") for seed in (5, 6, 7)]
    assert [run.experiment.seed for run in runs] == [5, 6, 7]
    assert [run.status()["state"] for run in runs] == ["complete"] * 3
    written = [path.stat().st_mtime_ns for path in sorted(folder.rglob("metrics.jsonl"))]
    assert main(words) == 0 and main(["resume", str(runs[0].path), "--frames", "128", "--quiet"]) == 0
    assert [path.stat().st_mtime_ns for path in sorted(folder.rglob("metrics.jsonl"))][1:] == written[1:]
    assert Run.open(runs[0].path).status()["frames"] == 128
    capsys.readouterr()
    for wrong, message in (
        ("seeds=x", "seeds=x: expected the number of seeds, from 2 to 10,000"),
        ("seed=0,1", "seeds=3 needs one first seed; got seed=0,1"),
        ("algorithms.agent=a2c", "runs in one batch do not support algorithm=a2c"),
        ("env=tree/kuhn_poker", "take turns; training runs in one batch need all to act at every step"),
    ):
        others = [word for word in words[1:] if word.partition("=")[0] not in (wrong.partition("=")[0], "run")]
        assert main(["train", *others, wrong, f"run={tmp_path / 'none'}"]) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "none").exists()


def test_seeds_that_cannot_start_do_not_end_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "seeds"
    words = ["train", *MPE, "algorithm=ippo", "seeds=3", f"run={folder}", "--jobs", "1", "--quiet"]
    assert main([*words, "max_agent_steps=1000"]) == 1
    assert not list(folder.glob("*/*"))
    (folder / "seed=1").mkdir()
    (folder / "seed=1" / "notes.txt").touch()
    capsys.readouterr()
    assert main(words) == 1
    captured = capsys.readouterr()
    assert "2 of 3 runs complete" in captured.out and "seed=1 exists already and holds notes.txt" in captured.err
    with (folder / "seed=0" / "metrics.jsonl").open("a") as metrics:
        metrics.write("damaged\n")
    assert main(words) == 1
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["0", "complete", "64", "-"]


def test_seeds_train_together_in_a_process_for_each_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marlnb.batch.trainings.train_all.usable_cores", lambda: 2)
    trainings = plan_trainings([*MPE, "algorithm=ippo", "seed=0..3"])
    assert default_jobs(trainings, together=False) == 1
    assert default_jobs(plan_trainings([*MPE, "device=cuda", "seed=0..3"]), together=True) == 1
    result = train_all(trainings, tmp_path / "seeds", together=True, progress=False)
    assert not result.failed and [row["state"] for row in result.rows()] == ["complete"] * 4
    logs = [path.parent.name for path in (tmp_path / "seeds").rglob("output.log")]
    assert sorted(logs) == ["seed=0", "seed=2"]
