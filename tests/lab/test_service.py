"""What the JupyterLab extension asks of a kernel."""

from __future__ import annotations

import ast
import json
import math
import os
import shlex
import shutil
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

import marlnb as mnb
from marlnb.batch.batch import Batch
from marlnb.cli import main
from marlnb.experiment import Experiment
from marlnb.lab import run_page
from marlnb.lab.run_page import RESUMED
from marlnb.lab.service import reply
from marlnb.lab.verbs import Session
from marlnb.training.control import is_requested
from marlnb.training.runs.files import is_run, line_of, numbered
from marlnb.training.runs.listing import list_runs
from marlnb.training.runs.lock import RunLock
from marlnb.training.runs.run import Run
from tests.lab.run_folders import DATA, keep_rows, write_run


def ask(session: Session, verb: str, **arguments: Any) -> dict[str, Any]:
    text = reply(session, json.dumps({"id": 5, "verb": verb, "arguments": arguments}))
    message: dict[str, Any] = json.loads(text)
    assert text.isascii() and message["id"] == 5
    return message


def test_runs_are_those_of_the_command(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / f"seed={seed}", seed=seed)
    session = Session()
    answer = ask(session, "runs", folders=[str(tmp_path)])["answer"]
    assert answer["complete"]
    assert sorted(answer["changed"], key=lambda row: row["name"]) == [run.to_json() for run in list_runs(tmp_path)]
    assert ask(session, "runs", folders=[str(tmp_path)])["answer"]["changed"] == []
    assert len(ask(session, "runs", folders=[str(tmp_path)], fresh=True)["answer"]["changed"]) == 3


def test_a_request_that_cannot_be_met_is_answered_with_a_sentence() -> None:
    assert "no verb 'delete_all'" in ask(Session(), "delete_all")["error"]
    assert "runs" in ask(Session(), "__init__")["error"]
    assert "TypeError" in ask(Session(), "runs", folder=3)["error"]
    assert "JSONDecodeError" in json.loads(reply(Session(), "{"))["error"]


def test_a_page_has_curves_settings_events_checkpoints_and_recordings(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", seed=2)
    shutil.copytree(DATA / "checkpoints", run / "checkpoints")
    newest = max(run.glob("checkpoints/*"), key=lambda path: int(path.name))
    (newest / "manifest.json").write_text("{}")
    (run / "recordings").mkdir()
    (run / "recordings" / "a'b.h5").write_bytes(b"12345")
    (run / "recordings" / "gone.h5").symlink_to(tmp_path / "gone")
    page = ask(Session(), "run", path=str(run))["answer"]
    assert page["summary"]["seed"] == 2 and page["experiment"]["env"]["name"] == "mpe/simple_speaker_listener"
    curve = page["curves"]["returns"]["speaker"]
    assert curve["x"][-1] == 100_000 and curve["y"][-1] == pytest.approx(-12 - 30 * math.exp(-4))
    assert page["curves"]["numbers"]["speaker/entropy"]["y"][-1] == pytest.approx(0.5)
    first, second = page["checkpoints"][:2]
    assert "problem" in first and "problem" not in second and second["size_bytes"] > 1000
    assert [each["size_bytes"] for each in page["recordings"]] == [5] and page["events"][0].endswith("started")
    code = ask(Session(), "code", path=str(run))["answer"]
    assert shlex.split(code["command"].replace("\\\n", " "))[:2] == ["marlnb", "train"] and "seed=2" in code["command"]
    assert ast.literal_eval(code["attach"].partition("attach(")[2].rstrip(")")) == str(run)
    assert f"mnb.record({str(run)!r}, episodes=20," in code["record"]
    assert ast.literal_eval(code["microscope"]["a'b"].partition("microscope(")[2].rstrip(")")).endswith("a'b.h5")


def test_a_page_has_every_evaluation_of_a_long_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rows=4000)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["crc"]
        row["evaluation"] = {"speaker": row["iteration"]} if row["iteration"] % 50 == 0 else {}
    (run / "metrics.jsonl").write_text("".join(f"{line_of(row)}\n" for row in rows))
    returns = ask(Session(), "run", path=str(run))["answer"]["curves"]["returns"]
    assert returns["speaker, evaluated"] == {"x": [25 * k for k in range(50, 4001, 50)], "y": [*range(50, 4001, 50)]}
    assert 400 <= len(returns["speaker"]["x"]) <= 480


def test_a_page_hides_single_agents_at_first_as_the_panel_of_a_run_does() -> None:
    page = ask(Session(), "run", path=str(DATA.parent / "spread"))["answer"]
    assert page["curves"]["hidden"] == ["agent_0", "agent_1", "agent_2"]
    assert list(page["curves"]["returns"])[:1] == ["agent"]


def test_a_checkpoint_that_a_training_removes_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run")
    shutil.copytree(DATA / "checkpoints", run / "checkpoints")
    numbers = numbered(run / "checkpoints")
    monkeypatch.setattr(run_page, "numbered", lambda folder: [*numbers, 10_000])
    page = ask(Session(), "run", path=str(run))["answer"]
    assert page["problems"] == [] and [row["iteration"] for row in page["checkpoints"]] == numbers[::-1]
    assert not any("problem" in row for row in page["checkpoints"])


def test_a_damaged_line_of_the_metrics_is_named_and_the_others_are_drawn(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    lines[10] = lines[10].replace("frames", "Frames")
    lines[20] = "[" * 100_000 + "\n"
    (run / "metrics.jsonl").write_text("".join(lines))
    page = ask(Session(), "run", path=str(run))["answer"]
    assert len(page["curves"]["returns"]["speaker"]["x"]) == 48
    (problem,) = page["problems"]
    assert "metrics.jsonl: a line is damaged: its values were changed" in problem and "2 damaged lines" in problem


def test_actions_write_the_requests_of_the_widgets_and_the_command(tmp_path: Path) -> None:
    run, session = write_run(tmp_path / "run", state="running"), Session()
    assert "nothing is trained" in ask(session, "act", path=str(run), action="pause")["error"]
    with RunLock(run / "lock"):
        assert "pauses" in ask(session, "act", path=str(run), action="pause")["answer"]
        assert is_requested(run, "pause") and ask(session, "run", path=str(run))["answer"]["requests"] == ["pause"]
        ask(session, "act", path=str(run), action="continue")
        assert not is_requested(run, "pause")
        ask(session, "act", path=str(run), action="stop")
        assert is_requested(run, "stop")
        assert "trained already" in ask(session, "act", path=str(run), action="resume")["error"]
        assert "is being trained" in ask(session, "delete", path=str(run))["error"] and is_run(run)
    assert ask(session, "delete", path=str(run)) == {"id": 5, "answer": None}
    assert list(tmp_path.iterdir()) == []
    assert "not a run folder" in ask(session, "delete", path=str(tmp_path))["error"] and tmp_path.is_dir()


def test_actions_on_a_run_that_was_renamed_say_that_it_is_gone(tmp_path: Path) -> None:
    run, session = write_run(tmp_path / "run"), Session()
    run.rename(tmp_path / "renamed")
    for action in ("resume", "stop", "pause"):
        assert ask(session, "act", path=str(run), action=action)["error"] == f"{run} is not a run folder any more"
    assert not run.exists()


def test_resuming_trains_in_another_process_to_the_end(tmp_path: Path) -> None:
    overrides = ["env=mpe/simple_spread", "n_envs=4", "rollout_steps=25", "model.hidden=[8]", "threads=1"]
    experiment = Experiment.compose(*overrides, "frames=200", "algorithm.epochs=1", "evaluate_every=0")
    run = Run.create(tmp_path / "run", experiment)
    assert "resumes it" in ask(Session(), "act", path=str(run.path), action="resume")["answer"]
    deadline = time.monotonic() + 120
    while run.status()["state"] != "complete" and time.monotonic() < deadline:
        time.sleep(0.2)
    assert RESUMED.pop().wait(60) == 0
    assert run.status()["state"] == "complete", (run.path / "output.log").read_text()


def test_notes_are_shown_where_they_were_written(tmp_path: Path) -> None:
    run, session = write_run(tmp_path / "run"), Session()
    ask(session, "annotate", path=str(run), tags=["a", "<b>"], note="x" * 100)
    assert ask(session, "run", path=str(run))["answer"]["summary"]["tags"] == ["a", "<b>"]
    assert "at most" in ask(session, "annotate", path=str(run), tags=["y" * 101], note="")["error"]


def test_seeds_are_averaged_and_what_differs_is_shown(tmp_path: Path) -> None:
    lr = json.loads((DATA / "experiment.json").read_text())["algorithm"]
    paths = [str(write_run(tmp_path / f"a{seed}", seed=seed)) for seed in range(5)]
    paths += [str(write_run(tmp_path / "b", algorithm=lr | {"lr": 0.1}))]
    answer = ask(Session(), "compare", paths=paths)["answer"]
    assert set(answer["differences"]) == {"seed", "algorithm.lr"} and answer["refusals"] == []
    averaged, single = answer["curves"]
    assert averaged["runs"] == paths[:5] and single["label"] == "algorithm.lr=0.1" and single["low"] is None
    # the interquartile mean of -10, -11, ..., -14 less the common curve: that of the middle three
    assert averaged["value"][-1] == pytest.approx(-12 - 30 * math.exp(-4))
    assert averaged["low"][-1] < averaged["value"][-1] < averaged["high"][-1]


def test_differences_are_settings_that_a_run_has(tmp_path: Path) -> None:
    names = ("mpe/simple_spread", "mpe/simple_tag")
    envs = [{"name": names[0]}, {"name": names[1], "num_good": 1}]
    tuned = [[{"env": name, "budget": "20 seconds"}] for name in names]
    paths = [str(write_run(tmp_path / name, env=env, tuned=t)) for name, env, t in zip("ab", envs, tuned)]
    answer = ask(Session(), "compare", paths=paths)["answer"]
    assert answer["differences"] == {"env.name": dict(zip(paths, names)), "env.num_good": {paths[1]: 1}}


def test_labels_name_the_settings_that_tell_groups_apart(tmp_path: Path) -> None:
    defaults = json.loads((DATA / "experiment.json").read_text())["algorithm"]
    changes = [
        {"lr": lr, "epochs": n, "clip": clip, "gamma": n / 10} for lr, n, clip in ((1, 4, 5), (1, 4, 6), (2, 8, 5))
    ]
    changes += [{**changes[2], "grad_clip": 7.0}]
    paths = [str(write_run(tmp_path / f"{k}", algorithm=defaults | each)) for k, each in enumerate(changes)]
    labels = [curve["label"] for curve in ask(Session(), "compare", paths=paths)["answer"]["curves"]]
    assert len({*labels}) == 4 and all("algorithm.lr" in label and "2 more settings" in label for label in labels)
    first, second = labels[:2]
    assert first == second.replace("clip=6", "clip=5")


def test_scores_are_tested_in_pairs(tmp_path: Path) -> None:
    lr = json.loads((DATA / "experiment.json").read_text())["algorithm"]
    paths = [str(write_run(tmp_path / f"a{seed}", seed=seed)) for seed in range(5)]
    paths += [str(write_run(tmp_path / f"b{seed}", seed=seed, algorithm=lr | {"lr": 0.1})) for seed in range(5, 10)]
    paths += [str(write_run(tmp_path / "c", env={"name": "mpe/simple_tag"}))]
    answer = ask(Session(), "compare", paths=paths)["answer"]
    (test,) = answer["tests"]
    labels = {curve["runs"][0]: curve["label"] for curve in answer["curves"]}
    assert (test["better"], test["worse"]) == (labels[paths[0]], labels[paths[5]])
    assert test["probability"] == [1, 1, 1]
    assert test["p"] == pytest.approx(2 / math.comb(10, 5))  # no order of the ten runs separates them more


def test_settings_are_tested_by_group_if_the_groups_of_any_run_earn_differently(tmp_path: Path) -> None:
    """Hunters and prey of the second setting never met: both earned 0 in all of its runs."""
    lr = json.loads((DATA / "experiment.json").read_text())["algorithm"]
    paths = [write_run(tmp_path / f"a{seed}", seed=seed, rows=1) for seed in range(2)]
    paths += [write_run(tmp_path / f"b{seed}", seed=seed, rows=1, algorithm=lr | {"lr": 0.1}) for seed in range(2)]
    for path, catches in zip(paths, (1, 2, 0, 0)):
        returns = {"adversary": catches, "agent": -catches}
        (path / "metrics.jsonl").write_text(line_of({"iteration": 1, "frames": 100_000, "returns": returns}) + "\n")
    answer = ask(Session(), "compare", paths=[str(path) for path in paths])["answer"]
    assert [(curve["group"], curve["scores"]) for curve in answer["curves"]] == [
        ("adversary", [1, 2]), ("agent", [-1, -2]), ("adversary", [0, 0]), ("agent", [0, 0]),
    ]  # fmt: skip
    assert [test["probability"][0] for test in answer["tests"]] == [1, 1]
    # two of the six orders of four runs separate them as much, ties or not; two tests
    assert [test["p"] for test in answer["tests"]] == [pytest.approx(2 * 2 / 6)] * 2


def test_settings_are_scored_and_tested_at_the_same_frames(tmp_path: Path) -> None:
    lr = json.loads((DATA / "experiment.json").read_text())["algorithm"]
    same = {"algorithm": lr | {"lr": 0.1}}
    paths = [str(write_run(tmp_path / f"a{seed}", seed=seed)) for seed in range(3)]
    paths += [str(write_run(tmp_path / f"b{seed}", seed=seed, **same)) for seed in range(3)]
    keep_rows(Path(paths[-1]), 1, 10)  # 20,000 of 100,000 frames
    answer = ask(Session(), "compare", paths=paths)["answer"]
    scores = [curve["scores"] for curve in answer["curves"]]
    assert scores[0] == pytest.approx(scores[1])  # the same returns at the same frames
    (test,) = answer["tests"]
    assert test["probability"][0] == 0.5 and answer["curves"][0]["x"][-1] == 100_000
    shortened, tested = answer["refusals"]
    assert "up to 20,000 frames, where b2 is; others have 100,000" in shortened
    assert "scored and tested at 20,000 frames" in tested


def test_single_runs_are_scored_at_the_same_frames(tmp_path: Path) -> None:
    lr = json.loads((DATA / "experiment.json").read_text())["algorithm"]
    paths = [str(write_run(tmp_path / "a")), str(write_run(tmp_path / "b", algorithm=lr | {"lr": 0.1}))]
    keep_rows(Path(paths[1]), 1, 10)  # 20,000 of 100,000 frames
    answer = ask(Session(), "compare", paths=paths)["answer"]
    early, late = (curve["score"] for curve in answer["curves"])
    assert early == pytest.approx(late) and answer["curves"][0]["x"][-1] == 100_000
    (line,) = answer["refusals"]
    assert "scored at 20,000 frames" in line
    paths += [str(write_run(tmp_path / "a2", seed=1))]  # two runs and one: nothing is tested
    several, single = ask(Session(), "compare", paths=paths)["answer"]["curves"]
    assert several["score"][0] == pytest.approx(single["score"][0] - 0.5)


def test_runs_have_different_names_where_folders_have_the_same(tmp_path: Path) -> None:
    paths = [str(write_run(tmp_path / f"job{seed}" / "run", seed=seed)) for seed in range(3)]
    keep_rows(Path(paths[1]), 1, 10)
    answer = ask(Session(), "compare", paths=paths)["answer"]
    assert [run["name"] for run in answer["runs"]] == ["job0/run", "job1/run", "job2/run"]
    (line,) = answer["refusals"]
    assert "up to 20,000 frames, where job1/run is; others have 100,000" in line
    same_seed = write_run(tmp_path / "job7" / "run")
    labels = [c["label"] for c in ask(Session(), "compare", paths=[paths[0], str(same_seed)])["answer"]["curves"]]
    assert [label.rpartition(", ")[2] for label in labels] == ["job0/run", "job7/run"]


def test_settings_are_tested_only_where_both_have_returns(tmp_path: Path) -> None:
    lr = json.loads((DATA / "experiment.json").read_text())["algorithm"]
    paths = [write_run(tmp_path / f"a{seed}", seed=seed) for seed in range(2)]
    paths += [write_run(tmp_path / f"b{seed}", seed=seed, algorithm=lr | {"lr": 0.1}) for seed in range(2)]
    for path, rows in zip(paths, ((11, 50), (11, 50), (1, 3), (1, 3))):
        keep_rows(path, *rows)
    answer = ask(Session(), "compare", paths=[str(path) for path in paths])["answer"]
    (line,) = answer["refusals"]
    late, early = answer["curves"]
    assert f"{late['label']} has its first return at 22,000 frames, {early['label']} its last one at 6,000" in line
    assert "nothing is tested" in line and answer["tests"] == []


def test_too_many_settings_to_test_are_not_called_tested(tmp_path: Path) -> None:
    lr = json.loads((DATA / "experiment.json").read_text())["algorithm"]
    runs = [
        write_run(tmp_path / f"{k}-{seed}", seed=seed, rows=10, algorithm=lr | {"lr": 0.01 * (k + 1)})
        for k in range(9)
        for seed in range(2)
    ]
    keep_rows(runs[0], 1, 5)
    answer = ask(Session(), "compare", paths=[str(run) for run in runs])["answer"]
    text = "; ".join(answer["refusals"])
    assert "9 settings are not tested" in text and "scored at 50,000" in text and "scored and tested" not in text


@pytest.mark.parametrize(
    ("changes", "average_over", "reason"),
    [
        ({"n_envs": 7}, ["seed", "n_envs"], "different numbers of frames"),
        ({"env": {"name": "mpe/simple_tag"}}, ["seed", "env"], "their environments differ"),
        ({}, ["seed"], "the same seed"),
    ],
)
def test_an_average_that_would_mean_nothing_is_refused(
    tmp_path: Path, changes: dict[str, Any], average_over: list[str], reason: str
) -> None:
    paths = [str(write_run(tmp_path / "a")), str(write_run(tmp_path / "b", **changes))]
    answer = ask(Session(), "compare", paths=paths, average_over=average_over)["answer"]
    assert any(reason in refusal for refusal in answer["refusals"])
    assert all(len(curve["runs"]) == 1 for curve in answer["curves"]) and len(answer["curves"]) == 2


def test_runs_of_different_code_are_not_averaged(tmp_path: Path) -> None:
    paths = [str(write_run(tmp_path / f"seed={seed}", seed=seed)) for seed in range(3)]
    for path, sha256 in zip(paths, ("aaaa", "aaaa", "bbbb")):
        code = {"iteration": 0, "version": "0.1.0", "commit": "", "sha256": sha256, "own": {}}
        (Path(path) / "code.json").write_text(json.dumps({"code": [code]}))
    answer = ask(Session(), "compare", paths=paths, average_over=["seed", "code"])["answer"]
    assert len(answer["curves"]) == 3 and set(answer["differences"]) == {"seed", "code"}
    assert answer["choices"] == ["seed"]
    (refusal,) = answer["refusals"]
    assert "different code trained them: seed=0 with marlnb 0.1.0 (aaaa), seed=2 with marlnb 0.1.0 (bbbb)" in refusal
    assert len(ask(Session(), "compare", paths=paths[:2])["answer"]["curves"]) == 1


def test_runs_without_returns_or_of_other_environments_are_named(tmp_path: Path) -> None:
    empty = write_run(tmp_path / "empty", seed=1)
    (empty / "metrics.jsonl").unlink()
    other = write_run(tmp_path / "other", env={"name": "mpe/simple_tag"})
    answer = ask(Session(), "compare", paths=[str(empty), str(other), str(tmp_path / "gone")])["answer"]
    text = " ".join(answer["refusals"])
    assert "has no return yet" in text and "different scales" in text
    assert "not a run folder" in answer["runs"][2]["problem"]


def test_a_map_of_runs_is_that_of_the_function(tmp_path: Path) -> None:
    paths = [str(shutil.copytree(DATA, tmp_path / name)) for name in ("late", "early")]
    shutil.rmtree(tmp_path / "early" / "checkpoints" / "130")
    answer = ask(Session(), "run_map", paths=paths)["answer"]
    assert (answer["site"], answer["agent"]) == ("speaker/actor/hidden_2", "speaker_0")
    assert ["listener/actor/hidden_1", "listener_0"] in answer["choices"]
    with mnb.Recording.open(answer["recording"]) as shared:
        runs = [Run.open(path) for path in paths]
        expected = mnb.run_map(runs, shared, site=answer["site"], agent=answer["agent"])
        assert shared.path.parent.parent == tmp_path / "late" and len(shared.episodes) == 20
    assert answer["positions"] == pytest.approx(expected.positions) and answer["verdict"] == expected.verdict
    (pair,) = answer["pairs"]
    assert (pair["a"], pair["b"], pair["equal_returns"]) == (0, 1, True)
    assert pair["similarity"] == pytest.approx(expected.similarity[0, 1]) and pair["similarity"] < 0.99
    assert (pair["episode"], pair["step"]) == (expected.episode[0, 1], expected.step[0, 1])
    assert "at least 2 different runs" in ask(Session(), "run_map", paths=paths[:1])["error"]


def test_names_are_those_of_the_registries() -> None:
    names = ask(Session(), "names")["answer"]
    assert {"mpe/simple_spread", "pettingzoo/multiwalker"} <= set(names["env"])
    assert {"ippo", "mappo"} <= set(names["algorithm"]) and "gru" in names["model"] and "alphastar" in names["league"]


def test_a_plan_is_the_dry_run_of_the_command_and_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))  # a machine without a scheduler, whatever this one has
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("seed = 0  # of the training\nname = 'a'", metadata={"tags": ["parameters"]})]
    )
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made.cells.append(nbformat.v4.new_code_cell("assert seed >= 0"))
    notebook, session = "-it's;echo.ipynb", Session()
    nbformat.write(made, notebook)
    form = ask(session, "batch_form", notebook=notebook)["answer"]
    assert form["parameters"][0] == {
        "name": "seed", "takes": "a whole number", "code": "0", "help": "of the training", "required": False
    }  # fmt: skip
    assert {"local", "slurm"} <= set(form["profiles"]) and form["profiles"]["laptop"]["at_once"] == "1"
    assert {"name": "cores", "help": "CPU cores per job"} in form["resources"]
    assert form["unsupported"]["ray"] == ["at_once", "time_limit"] and form["unsupported"]["slurm"] == []
    choice = {"notebook": notebook, "parameters": ["seed=0..1"], "on": "slurm", "settings": ["time_limit=4:00:00"]}
    plan = ask(session, "batch", **choice)["answer"]
    assert main(shlex.split(plan["command"])[1:]) == 0
    assert plan["ok"] and plan["output"] == capsys.readouterr().out and "#SBATCH" in plan["output"]
    assert not (tmp_path / "runs").exists()
    bad = ask(session, "batch", **choice | {"parameters": ["sed=1"]})["answer"]
    assert not bad["ok"] and "did you mean 'seed'" in bad["output"]
    monkeypatch.setenv("PATH", path)
    sent = ask(session, "batch", **choice | {"on": "local", "parameters": ["seed=3"], "settings": [], "submit": True})[
        "answer"
    ]
    assert sent["ok"], sent["output"]
    batch, deadline = Batch.open(sent["batch"]), time.monotonic() + 120
    while {status.state for status in batch.statuses().values()} != {"complete"} and time.monotonic() < deadline:
        time.sleep(0.2)
    assert {status.state for status in batch.statuses().values()} == {"complete"}
