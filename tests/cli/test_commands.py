from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from marlnb.cli import main
from marlnb.cli.recordings.attribute import top_rows_of_each_agent
from marlnb.training.runs.run import Run

TINY = (
    *("env=mpe/simple_speaker_listener", "n_envs=4", "rollout_steps=25", "threads=1", "algorithm.epochs=1"),
    *("model.hidden=[8]", "checkpoint_every=2"),
)


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARLNB_CONFIG_DIR", raising=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "talk"
    assert main(["train", *TINY, "frames=400", "--quiet", f"run={folder}"]) == 0
    assert main(["record", str(folder), "--episodes", "3", "--quiet"]) == 0
    return folder


def test_train_made_the_run_that_was_asked_for(run: Path) -> None:
    made = Run.open(run)
    assert made.status()["state"] == "complete" and made.status()["frames"] == 400
    assert made.experiment.model.hidden == (8,)  # type: ignore[attr-defined]


def test_train_says_what_it_started_from_and_ends_with_both_scores(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *TINY, "frames=400", "--resume", f"run={run}"]) == 0
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert lines[0].startswith("Experiment: env=mpe/simple_speaker_listener")
    assert "tuned for mpe/simple_speaker_listener" in lines[1] + lines[2]
    scores = r"return exploring (?:\w+ -[\d.]+ ?){2}, greedy (?:\w+ -[\d.]+ ?){2}"
    assert re.search(rf"complete, 400 frames, {scores}\n$", printed.out)
    opened = Run.open(run)
    assert re.search(rf"complete, 400 frames, {scores}\)$", repr(opened))
    assert (
        "greedy" in opened._repr_html_() and "tuned for mpe/simple_speaker_listener, found by" in opened._repr_html_()
    )
    assert (
        opened.status()["scores"]["greedy"]
        == opened.metrics()
        .filter(like="evaluation/")
        .rename(columns=lambda name: name.removeprefix("evaluation/"))
        .iloc[-1]
        .to_dict()
    )


def test_train_says_how_to_get_a_greedy_score_where_evaluations_take_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["env=pettingzoo/simple_spread", "env.workers=0", "n_envs=2", "rollout_steps=25", "frames=50"]
    assert main(["train", *words, "model.hidden=[8]", "--quiet", f"run={tmp_path / 'run'}"]) == 0
    printed = capsys.readouterr()
    assert "greedy not evaluated" in printed.out
    assert printed.err.endswith(f"for the greedy return: marlnb evaluate {tmp_path / 'run'}\n")


def test_a_disk_that_refuses_a_checkpoint_is_a_failure_not_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        code = main(["train", *TINY, "frames=400", "--quiet", f"run={tmp_path / 'run'}"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 1 and "checkpoint 2 cannot be written" in capsys.readouterr().err


def test_a_disk_that_refuses_a_recording_is_a_failure_not_bad_input(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marlnb.recording.file.layout.MAX_BLOCK_ROWS", 512)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_500_000, hard))
    try:
        code = main(["record", str(run), "--name", "full", "--episodes", "1000", "--quiet"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        (run / "recordings" / "full.h5").unlink()
    assert code == 1 and re.search(r"a limit on the size .* rows before it are kept", capsys.readouterr().err)


def test_a_folder_that_exists_is_not_overwritten(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(["train", *TINY, "frames=400", "--quiet", f"run={run}"]) == 2
    assert f"{run} exists already and is a run: resume it" in capsys.readouterr().err
    assert main(["record", str(run), "--episodes", "3", "--quiet"]) == 2
    assert "already exists; give another name: --name NAME\n" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert main(["train", *TINY, "frames=400", "--quiet", "--resume", f"run={run}"]) == 0
    assert main(["train", *TINY, "frames=500", "--quiet", "--resume", f"run={run}"]) == 2
    assert "frames: 400 there, 500 here" in capsys.readouterr().err


def test_dry_run_prints_the_experiment_and_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *TINY, "--dry-run", f"run={tmp_path / 'x'}"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["hidden"] == [8]
    assert not (tmp_path / "x").exists()


def test_evaluate_prints_one_json_object_whatever_else_is_printed(run: Path) -> None:
    """In a process of its own, with PettingZoo's environment, whose libraries greet on stdout."""
    words = ["evaluate", str(run), "--episodes", "5", "--seed", "7", "--env", "pettingzoo/simple_speaker_listener"]
    environment = {key: value for key, value in os.environ.items() if key != "PYGAME_HIDE_SUPPORT_PROMPT"}
    done = subprocess.run(
        [sys.executable, "-m", "marlnb", *words, "--json"],
        capture_output=True,
        text=True,
        timeout=200,
        env=environment,
        check=True,
    )
    printed = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert (printed["episodes"], printed["seed"], printed["env"]) == (5, 7, "pettingzoo/simple_speaker_listener")
    assert set(printed["return_mean"]) == set(printed["return_se"]) == {"speaker", "listener"}
    assert printed["return_mean"]["speaker"] == pytest.approx(printed["return_mean"]["listener"])


def test_evaluate_prints_a_row_for_each_player_of_self_play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("env=pettingzoo/tictactoe", "env.workers=0", "n_envs=4", "rollout_steps=25", "frames=100", "threads=1")
    assert main(["train", *words, "--quiet", f"run={tmp_path / 'run'}"]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--policy", "random", "--episodes", "8"]) == 0
    printed = capsys.readouterr().out
    first, second = re.findall(r"player_[12] +(\S+)", printed)
    assert float(first) == -float(second) and "group or agent" in printed


def test_evaluate_random_and_with_units_held_at_zero(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def returns(*words: str) -> float:
        assert main(["evaluate", str(run), "--episodes", "4", "--json", *words]) == 0
        return float(json.loads(capsys.readouterr().out)["return_mean"]["listener"])

    plain = returns()
    assert returns() == plain
    assert returns("--policy", "random") != plain
    assert returns("--ablate", "listener/actor/hidden_1") != plain
    assert returns("--checkpoint", "2") is not None
    assert main(["evaluate", str(run), "--episodes", "4"]) == 0
    assert re.search(r"listener +-\d", capsys.readouterr().out)


def test_record_in_another_environment(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["record", str(run), "--episodes", "2", "--name", "short", "--quiet"]
    assert main([*words, "--env", "mpe/simple_speaker_listener", "env.max_cycles=7"]) == 0
    assert main(["info", capsys.readouterr().out.strip(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 14
    for wrong, message in {
        ("env.max_cycles=7",): "is an option of another environment; give --env NAME too",
        ("--env", "mpe/simple_spread"): "the run was trained on mpe/simple_speaker_listener",
        ("--env", "mpe/simple_speaker_listener", "seed=3"): "expected an option of the environment, env.KEY=VALUE",
    }.items():
        assert main([*words, *wrong]) == 2
        assert message in capsys.readouterr().err


def test_record_names_its_file_and_plan_makes_none(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["record", str(run), "--episodes", "2", "--name", "half", "--every", "5", "--sites", "listener/actor/*"]
    assert main([*words, "--dtype", "float16", "--plan"]) == 0
    assert "activations/listener/actor/hidden_1" in capsys.readouterr().out
    assert "half" not in Run.open(run).recordings
    assert main([*words, "--dtype", "float16", "--quiet"]) == 0
    path = capsys.readouterr().out.strip()
    assert Run.open(run).recordings["half"] == Path(path)
    assert main(["info", path, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kind"], facts["episodes"]) == ("recording", 2)
    assert (facts["steps"], facts["recorded_steps"]) == (50, 10)
    assert facts["sites"] == {"listener/actor/hidden_1": [10, 1, 8], "listener/actor/head": [10, 1, 5]}


def test_info_of_a_recording_lists_the_recorded_agents(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", str(run), "--name", "one", "--agents", "listener_0", "--episodes", "1", "--no-values"]) == 0
    assert main(["info", capsys.readouterr().out.strip(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == {"listener": ["listener_0"]}


def test_attribute_writes_a_table_a_figure_and_the_values(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = str(run / "recordings" / "recording.h5")
    assert main(["attribute", recording, "--group", "listener", "--method", "saliency"]) == 0
    files = [Path(line) for line in capsys.readouterr().out.splitlines()[-3:]]
    assert [file.suffix for file in files] == [".h5", ".csv", ".png"]
    assert all(file.stat().st_size > 0 for file in files)
    assert main(["attribute", recording, "--group", "listener", "--method", "saliency"]) == 2
    assert "exist already" in capsys.readouterr().err
    assert main(["attribute", recording, "--group", "listner"]) == 2
    assert "did you mean 'listener'" in capsys.readouterr().err
    alone = shutil.copy(recording, tmp_path / "alone.h5")
    assert main(["attribute", str(alone), "--group", "listener"]) == 2
    advice = "put it into the folder recordings of its run, or in Python pass policies="
    assert f"is in no run folder, so its policies are unknown; {advice}" in capsys.readouterr().err


def test_a_long_table_of_attributions_shows_every_agent() -> None:
    table = pd.DataFrame({"agent": ["a"] * 18 + ["b"] * 18 + ["c"] * 18, "mean_abs": [*range(18, 0, -1)] * 3})
    shown = top_rows_of_each_agent(table)
    assert shown.agent.tolist() == ["a"] * 6 + ["b"] * 6 + ["c"] * 6
    assert shown.mean_abs.tolist() == [18, 17, 16, 15, 14, 13] * 3
    assert len(top_rows_of_each_agent(table, n_rows=6)) == 15 and len(top_rows_of_each_agent(table[:18])) == 18


def test_info_of_a_run_and_of_a_checkpoint(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(run), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["kind"] == "run" and facts["checkpoints"] == [2, 4]
    assert facts["groups"]["listener"]["observation"] == [11]
    assert main(["info", str(run / "checkpoints" / "4")]) == 0
    output = capsys.readouterr().out
    assert re.search(r"kind +checkpoint", output) and re.search(r"frames +400", output)


def test_list_names_and_sites(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "env" / "mine").mkdir(parents=True)
    (tmp_path / "env" / "mine" / "short.yaml").write_text("defaults: [mpe/simple_spread]\n")
    assert main(["list", "envs", "--config-dir", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert all(name in output for name in ("mpe/simple_spread", "pettingzoo/multiwalker", "mine/short"))
    assert main(["list", "algorithms"]) == 0 and "mappo" in capsys.readouterr().out
    assert main(["list", "models", "--json"]) == 0
    assert {"mlp", "gru"} <= set(json.loads(capsys.readouterr().out)["models"])
    expected = {"site": "listener/actor/hidden_1", "agents": 1, "units": 8, "kind": "hidden"}
    named_like_an_override = tmp_path / "seed=0"
    named_like_an_override.symlink_to(run)
    for of in ([str(run)], [str(named_like_an_override)], [*TINY]):
        assert main(["list", "sites", *of, "--json"]) == 0
        assert expected in json.loads(capsys.readouterr().out)["sites"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "env=mpe/simple_spred"], "did you mean 'mpe/simple_spread'"),
        (["train", "env=mpe/simple_spread", "algorithm=mapo"], "did you mean 'mappo'"),
        (["train", "env=mpe/simple_spread", "algorithm.lrr=1"], "did you mean 'algorithm.lr'"),
        (["train"], "no environment; add env=<name>"),
        (["train", "{run}"], "is a run's folder; marlnb resume {run} continues its training"),
        (["train", "env=mpe/simple_spread", "--resume"], "--resume needs the run's folder: run=FOLDER"),
        (["evaluate", "{run}x"], "is not a run folder"),
        (["evaluate", "{run}", "--env", "mpe/simple_spread"], "groups"),
        (["evaluate", "{run}", "--env", "mpe/simple_spred"], "did you mean 'mpe/simple_spread'"),
        (["evaluate", "{run}", "--policy", "randm"], "did you mean 'random'"),
        (["evaluate", "{run}", "--checkpoint", "99"], "valid: last, best or one of: 2, 4"),
        (["evaluate", "{run}", "--episodes", "0"], "episodes"),
        (["evaluate", "{run}", "--ablate", "listener/actor/hiden_1"], "did you mean 'listener/actor/hidden_1'"),
        (["evaluate", "{run}", "--ablate", "listener/actor/hidden_1:x"], "expected numbers of units"),
        (["evaluate", "{run}", "--ablate", "listener/actor/hidden_1:"], "expected numbers of units"),
        (
            ["export", "x.h5", "--to", "csv", "--out", "x.csv", "--name", "foo"],
            "--name names Minari datasets; --to csv",
        ),
        (["gallery", "show", "push", "--out", "x"], "--out is an option of make and check, not of show"),
        (["gallery", "list", "push"], "`marlnb gallery list` takes no names"),
        (["lab", "--port", "99999"], "--port must be 0 to 65535"),
        (["jobs", "--lines", "3"], "add --log JOB"),
        (["evaluate", "{run}", "frames=3"], "is an option of another environment"),
        (["record", "{run}", "--sites", "listner/*"], "no site 'listner/*'"),
        (["record", "{run}", "--dtype", "float8"], "float8"),
        (["attribute", "{run}/recordings/recordin.h5", "--group", "listener"], "recordin.h5"),
        (["info", "{run}x"], "runs near it"),
        (["info", "{run}/recordings/none.h5"], "none.h5"),
        (["list", "env"], "did you mean 'envs'"),
        (["list", "sites"], "needs a run or an experiment"),
        (["resume", "{run}x"], "is not a run folder"),
        (["benchmark", "{run}x", "--dry-run"], "{run}x does not exist"),
        (["resume", "{run}", "--frames", "10"], "less than the 400 frames"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    run: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.replace("{run}", str(run)) for word in words]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("marlnb: ") and message.replace("{run}", str(run)) in printed.err
    assert "Traceback" not in printed.err and printed.out == ""


def test_an_interrupt_keeps_what_was_trained_and_resume_continues(tmp_path: Path) -> None:
    folder = tmp_path / "long"
    command = [sys.executable, "-m", "marlnb", "train", *TINY, "frames=100_000_000", "--quiet", f"run={folder}"]
    training = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 200
        while not frames_of(folder) and training.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        training.send_signal(signal.SIGINT)
        out, err = training.communicate(timeout=200)
    finally:
        training.kill()
    assert training.returncode == 130, err
    assert "stopped" in out and f"marlnb resume {folder}" in err and "Traceback" not in err
    stopped = Run.open(folder)
    assert stopped.checkpoint().frames == stopped.status()["frames"] > 0
    assert main(["resume", str(folder), "--frames", str(stopped.checkpoint().frames + 100), "--quiet"]) == 0


def frames_of(folder: Path) -> int:
    status = folder / "status.json"
    return int(json.loads(status.read_text()).get("frames", 0)) if status.exists() else 0


def test_a_reader_that_leaves_early_is_no_error(run: Path) -> None:
    line = f"{sys.executable} -m marlnb list envs | head -n 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.startswith("name") and "Traceback" not in done.stderr
