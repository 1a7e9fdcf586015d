"""Benchmarks of the toy whose returns are known: planned, run, resumed, failed, compared."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marlnb.analysis.benchmarking.marl_eval import read_marl_eval
from marlnb.batch.benchmark import run_benchmark
from marlnb.batch.benchmark.benchmark import Benchmark
from marlnb.batch.benchmark.results import measured
from marlnb.batch.benchmark.run_benchmark import benchmark
from marlnb.batch.benchmark.spec import BenchmarkRun, BenchmarkSpec, read_spec
from marlnb.batch.trainings.launch_together import is_faster_together, run_together
from marlnb.cli import main
from marlnb.errors import AnalysisError, ConfigError, RunError
from marlnb.experiment import Experiment
from marlnb.specs import derive_seed
from marlnb.training.runs.files import parse_line
from marlnb.training.runs.run import Run
from tests.training import toys  # registers toy/count

BENCHMARL = Path(__file__).parents[1] / "analysis" / "benchmarking" / "data" / "benchmarl"
SMALL = (
    *("algorithm.epochs=1", "algorithm.minibatch_frames=32", "model.hidden=[8]", "n_envs=4", "rollout_steps=8"),
    *("frames=320", "evaluation_episodes=3"),
)
TOYS = {"toy/count": [], "toy/mortal": ["env=toy/count", "env.mortal=true"]}
MPE = ("frames=200", "n_envs=4", "rollout_steps=25", "algorithm.epochs=1", "evaluation_episodes=2", "model.hidden=[8]")


def toy_benchmark(out: Path, **changes: Any) -> Benchmark:
    options: dict[str, Any] = {
        "algorithms": ["ippo", "mappo"],
        "environments": TOYS,
        "seeds": 2,
        "overrides": SMALL,
        "evaluations": 5,
        "report": False,
        "progress": False,
    }
    return benchmark(None, out, **{**options, **changes})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    return toy_benchmark(tmp_path_factory.mktemp("benchmark") / "b")


def expected(seeds: np.ndarray) -> np.ndarray:
    """The toy's return of an agent of group a, whatever the policy does; one of b earns half a point a step less."""
    return (seeds % 5 + 0.5) * (2 + seeds % 7)


def test_every_run_is_there_and_says_what_it_measured(done: Benchmark) -> None:
    assert not done.failed and not done.stopped
    table = done.table()
    assert len(table) == 8 and set(table["state"]) == {"complete"} and set(table["frames"]) == {320}
    what = f"Benchmark {done.path}: ippo, mappo on toy/count, toy/mortal, 2 seeds; runs: 8 complete"
    assert repr(done) == f"<{what}>" and done._repr_html_().startswith(f"<p><b>{what}</b></p><table")
    run = Run.open(done.path / "runs" / "toy" / "mortal" / "mappo" / "seed_1")
    assert run.experiment.env.mortal and run.experiment.seed == 1  # type: ignore[attr-defined]
    assert run.experiment.algorithm.name == "mappo"
    assert [row["frames"] for row in run.evaluations()] == [64, 128, 192, 256, 320]


def test_marl_eval_holds_the_known_returns_of_held_out_episodes(done: Benchmark) -> None:
    raw = json.loads((done.path / "marl_eval.json").read_text())
    entry = raw["toy"]["count"]["ippo"]["seed_1"]
    first = derive_seed(1, "evaluation")
    assert entry["step_3"]["step_count"] == 192 and entry["step_3"]["elapsed_time"] > 0
    np.testing.assert_allclose(entry["step_3"]["a_return"], expected(first + np.arange(3)))
    long = derive_seed(1, "absolute")
    np.testing.assert_allclose(entry["absolute_metrics"]["a_return"], expected(long + np.arange(30)))
    assert sorted(entry["absolute_metrics"]) == ["a_return", "b_return"]  # a and b are rewarded differently: no mean
    assert {str(run) for run in read_marl_eval(done.path / "marl_eval.json")} == {str(run) for run in done.runs()}


def test_a_complete_benchmark_is_left_as_it_is(done: Benchmark) -> None:
    written = {path: path.stat().st_mtime_ns for path in (done.path / "runs").rglob("*") if path.is_file()}
    again = toy_benchmark(done.path)
    assert not again.failed
    assert written == {path: path.stat().st_mtime_ns for path in (done.path / "runs").rglob("*") if path.is_file()}


def test_more_seeds_add_runs_and_other_options_are_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"algorithms": ["ippo"], "environments": ["toy/count"]}
    toy_benchmark(tmp_path / "b", **options, seeds=1)
    assert len(toy_benchmark(tmp_path / "b", **options, seeds=[0, 5]).runs()) == 2
    with pytest.raises(RunError, match=r"seed_0 is a run of another experiment; algorithm.lr"):
        toy_benchmark(tmp_path / "b", **options, overrides=(*SMALL, "algorithm.lr=0.1"))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.tex").touch()
    with pytest.raises(RunError, match=r"holds thesis.tex but no benchmark"):
        toy_benchmark(tmp_path / "c", **options)


def test_a_failing_run_is_reported_and_the_others_continue(tmp_path: Path) -> None:
    environments = {"toy/count": [], "toy/broken": ["env=toy/count", "env.fail_at=20"]}
    result = toy_benchmark(tmp_path / "b", environments=environments, algorithms=["ippo"], seeds=1)
    assert result.failed == {"toy/broken, ippo, seed 0": "RuntimeError: the toy broke"}
    assert list(result.table()["state"]) == ["complete", "failed"] and not result.stopped
    assert list(json.loads((result.path / "marl_eval.json").read_text())["toy"]) == ["count"]
    assert main(["benchmark", str(result.path), "--no-report", "--quiet"]) == 1  # tried again, and failed again


def test_what_was_interrupted_continues_and_ends_in_the_same_numbers(tmp_path: Path, done: Benchmark) -> None:
    options: dict[str, Any] = {"algorithms": ["ippo"], "environments": ["toy/count"], "seeds": 1}
    options["overrides"] = [*SMALL, "keep_checkpoints=0"]
    made = toy_benchmark(tmp_path / "b", **options)
    folder = made.path / "runs" / "toy" / "count" / "ippo" / "seed_0"
    reference = json.loads((made.path / "marl_eval.json").read_text())
    # as it would be had it been killed after its second evaluation, with a line of the third half written
    (folder / "absolute.json").unlink()
    for path in (folder / "checkpoints").iterdir():
        if int(path.name) > 4:
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
    (folder / "status.json").write_text('{"state": "running", "frames": 128}')
    with open(folder / "evaluations.jsonl", "a") as file:
        file.write('{"iteration": 6, "fra')
    assert list(made.table()["state"]) == ["interrupted"]
    again = json.loads((toy_benchmark(tmp_path / "b", **options).path / "marl_eval.json").read_text())
    for raw in (reference, again):
        for step in raw["toy"]["count"]["ippo"]["seed_0"].values():
            step.pop("elapsed_time", None)
    assert again == reference


def test_scores_are_on_the_scale_of_the_random_policy(done: Benchmark) -> None:
    """On the toy no policy is better than random: the levels are means over other episodes of the same kind."""
    levels = done.references("a_return")
    seeds = derive_seed(0, "references") + np.arange(30)
    assert levels["toy/count"] == {"random": pytest.approx(expected(seeds).mean())}
    assert done.metrics() == ["a_return", "b_return"]
    with pytest.raises(AnalysisError, match=r"no metric 'return'.*a_return, b_return: its groups are rewarded diff"):
        done.compare()
    comparison = done.compare(metric="a_return")
    np.testing.assert_allclose(comparison.scores["ippo"], comparison.scores["mappo"])
    finals = np.array([expected(derive_seed(seed, "evaluation") + np.arange(3)).mean() for seed in (0, 1)])
    assert finals.max() < levels["toy/count"]["random"]  # so the scale ends with random
    scale = (finals - finals.min()) / (levels["toy/count"]["random"] - finals.min())
    np.testing.assert_allclose(comparison.scores["ippo"][:, 0], scale)


def test_known_levels_are_those_of_the_table(tmp_path: Path) -> None:
    result = benchmark(
        None, tmp_path / "b", algorithms=["ippo"], environments=["mpe/simple_spread"], seeds=1, overrides=MPE,
        report=False, progress=False, compare=[{"path": BENCHMARL, "label": "BenchMARL",
                                                "tasks": {"pettingzoo/simple_spread": "mpe/simple_spread"}}],
    )  # fmt: skip
    assert result.references()["mpe/simple_spread"] == {"random": -26.4, "no-op": -24.14, "scripted oracle": -7.67}
    compared = result.compare()
    assert list(compared.scores) == ["ippo", "ippo (BenchMARL)"] and compared.scores["ippo (BenchMARL)"].shape == (2, 1)
    seed_1 = (-176.12538909 + 26.4) / (26.4 - 7.67)  # 100 steps, so far below; the last evaluation's mean
    assert compared.scores["ippo (BenchMARL)"][1, 0] == pytest.approx(seed_1, rel=1e-6)


def test_each_metric_of_a_mixed_benchmark_has_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Agents share their reward in the first environment; in three steps of the second no hunter catches anyone."""
    folder, reports = tmp_path / "b", list[str]()
    options = ["--envs", "mpe/simple_spread,mpe/simple_tag", "--seeds", "1", "env.max_cycles=3", "--quiet"]
    assert main([*words_of(folder), *options, "--no-report"]) == 0
    made = Benchmark.open(folder)
    assert made.metrics() == ["return", "adversary_return", "agent_return"]
    assert made.compare().tasks == ("mpe/simple_spread",)
    outdated = folder / "report" / "notebook.ipynb"  # of the first environment alone
    outdated.parent.mkdir()
    outdated.touch()

    def execute(notebook: Path, out: Path, parameters: dict[str, Any], *, progress: bool) -> None:
        reports.append(parameters["metric"])
        out.mkdir()
        (out / "notebook.ipynb").touch()

    monkeypatch.setattr("marlnb.batch.job.execute.execute", execute)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert main(["benchmark", "b", "--quiet"]) == 0
    assert reports == ["return", "agent_return"] and not outdated.exists()
    assert [path.parent.name for path in made.reports] == ["agent_return", "return"]
    why = "no task can be compared; mpe/simple_tag: no scale, since random (0) is not above worst run (0)"
    assert f"no report of adversary_return: {why}\n" in capsys.readouterr().err


def test_a_comparison_that_cannot_be_read_is_an_error_before_anything_is_trained(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"a": [1')
    with pytest.raises(AnalysisError, match=r"other.json"):
        toy_benchmark(tmp_path / "b", compare=[str(other)])
    assert not (tmp_path / "b").exists()


def test_a_plan_in_yaml(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        "algorithms:\n  ippo: [algorithm.lr=1e-3]\n  careful: algorithm=mappo\n"
        "environments: [mpe/simple_spread]\nseeds: [3, 5]\noverrides: [frames=6400, n_envs=16, algorithm.lr=1e-2]\n"
    )
    spec = read_spec(tmp_path / "spec.yaml")
    runs = spec.runs()
    assert [run.folder for run in runs][:2] == [f"runs/mpe/simple_spread/{name}/seed_3" for name in ("ippo", "careful")]
    assert [run.experiment.algorithm.name for run in runs] == ["ippo", "mappo"] * 2
    assert [run.experiment.algorithm.lr for run in runs] == [1e-3, 1e-2] * 2  # type: ignore[attr-defined]
    # 6400 frames are 7 iterations of 1024: 10 evaluations would be more, so one after each, and a checkpoint with it
    assert {(run.experiment.evaluate_every, run.experiment.checkpoint_every) for run in runs} == {(1, 1)}
    assert BenchmarkSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_a_folder_of_variants_applies_in_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its path is stored whole; the option replaces it for a benchmark's folder and for a file."""
    for name, lr in (("first", 0.01), ("second", 0.02)):
        (tmp_path / name / "algorithm").mkdir(parents=True)
        (tmp_path / name / "algorithm" / "fast.yaml").write_text(f"defaults: [ippo]\nlr: {lr}\n")
    monkeypatch.chdir(tmp_path)
    spec = BenchmarkSpec.make("fast", "mpe/simple_spread", 1, config_dir="first")
    (tmp_path / "spec.yaml").write_text(
        "algorithms: [fast]\nenvironments: [mpe/simple_spread]\nseeds: 1\nconfig_dir: first\n"
    )
    Benchmark.create(tmp_path / "b", spec)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Benchmark.open(tmp_path / "b").spec == spec == read_spec(tmp_path / "spec.yaml")
    assert spec.runs()[0].experiment.algorithm.lr == 0.01  # type: ignore[attr-defined]
    for source in ("b", "spec.yaml"):
        words = ["benchmark", str(tmp_path / source), "--dry-run", "--json"]
        assert main(words) == main([*words, "--config-dir", "../second"]) == 0
        specs = [json.loads(line)["spec"] for line in capsys.readouterr().out.splitlines()]
        assert [Path(each["config_dir"]).resolve() for each in specs] == [tmp_path / "first", tmp_path / "second"]
        assert main([*words, "--config-dir", "gone"]) == 2
        assert f"no folder of configurations at '{tmp_path / 'elsewhere' / 'gone'}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("algoritms: [ippo]\nenvironments: [x]\nseeds: 1", "no key 'algoritms'; did you mean 'algorithms'"),
        ("algorithms: [ippo]\nseeds: 1", "the key environments is missing"),
        ("algorithms: [ippo]\nenvironments: [x]\nseeds: 0", "seeds: expected their number"),
        ("algorithms: [ippo]\nenvironments: [x]\nseeds: [1, 1]", "seeds: expected their number"),
        ("algorithms: {ippo: lr}\nenvironments: [x]\nseeds: 1", "algorithms: ippo: expected a list of key=value"),
        ("algorithms: ['../x']\nenvironments: [x]\nseeds: 1", "'../x' is not a valid name"),
        ("algorithms: [ippo]\nenvironments: ['../x']\nseeds: 1", "'../x' is not a valid name"),
        (
            "algorithms: [ippo]\nenvironments: [x]\nseeds: 1\ncompare: [gone.json]",
            "compare: .*gone.json does not exist",
        ),
        (
            "algorithms: [ippo]\nenvironments: [x]\nseeds: 1\nconfig_dir: [a]",
            r"config_dir: expected a folder; got \['a'\]",
        ),
        ("- a", "expected a mapping with"),
        ("{", "cannot be read as YAML"),
    ],
)
def test_an_invalid_spec_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_spec(tmp_path / "spec.yaml")


def test_what_cannot_be_composed_names_its_place_and_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"toy/count, ipo: .*did you mean 'ippo'"):
        toy_benchmark(tmp_path / "b", environments=["toy/count"], algorithms=["ipo"])
    with pytest.raises(ConfigError, match="does not accept the override seed="):
        toy_benchmark(tmp_path / "b", overrides=("seed=1",))
    with pytest.raises(ConfigError, match="does not accept evolution=, because it compares evaluations"):
        toy_benchmark(tmp_path / "b", overrides=("evolution=pbt",))
    with pytest.raises(ConfigError, match=r"toy/count, iql: iql for every group would learn nothing"):
        toy_benchmark(tmp_path / "b", environments=["toy/count"], algorithms=["ippo", "iql"], overrides=["frames=320"])
    with pytest.raises(ConfigError, match=r"toy/count, ippo: algorithm.sequence_length=8 has no effect: mlp has no"):
        toy_benchmark(tmp_path / "b", overrides=[*SMALL, "algorithm.sequence_length=8"])
    gru = ["algorithm=ippo", "model=gru", "algorithm.sequence_length=4"]
    mlp = ["algorithm=ippo", "algorithm.sequence_length=8"]
    with pytest.raises(ConfigError, match=r"toy/count, mlp: algorithm.sequence_length=8 has no effect"):
        toy_benchmark(tmp_path / "b", algorithms={"gru": gru, "mlp": mlp})
    with pytest.raises(ConfigError, match="jobs: expected at least 1"):
        toy_benchmark(tmp_path / "b", jobs=0)
    with pytest.raises(ConfigError, match="or algorithms and environments"):
        benchmark()
    assert not (tmp_path / "b").exists()


def test_arguments_next_to_a_spec_extend_it_or_are_errors(tmp_path: Path, done: Benchmark) -> None:
    """What a spec must state itself is an error; overrides and results to compare are added."""
    (tmp_path / "spec.yaml").write_text("algorithms: [ippo]\nenvironments: [toy/count]\nseeds: 1\n")
    options: dict[str, Any] = {"overrides": SMALL, "report": False, "progress": False}
    for name, value in (("seeds", 3), ("evaluations", 2), ("algorithms", ["mappo"]), ("environments", ["toy/count"])):
        for spec in (tmp_path / "spec.yaml", read_spec(tmp_path / "spec.yaml")):
            with pytest.raises(ConfigError, match=rf"the spec states .* got {name} too: remove them, or change"):
                benchmark(spec, tmp_path / "b", **{name: value}, **options)
    with pytest.raises(ConfigError, match=r"compare: .*gone.json does not exist"):
        benchmark(tmp_path / "spec.yaml", tmp_path / "b", compare=["gone.json"], **options)
    with pytest.raises(ConfigError, match=r"no folder of configurations at '.*gone'"):
        benchmark(read_spec(tmp_path / "spec.yaml"), tmp_path / "b", config_dir="gone", **options)
    assert not (tmp_path / "b").exists()
    compare = [done.write_marl_eval()]
    made = benchmark(tmp_path / "spec.yaml", tmp_path / "b", compare=compare, **options)
    assert made.spec.overrides == SMALL and len(made.runs()) == 1 + 8


def test_an_override_with_an_effect_in_one_run_is_accepted() -> None:
    gru = {"gru": ["algorithm=ippo", "model=gru"]}
    spec = BenchmarkSpec.make({"ippo": []} | gru, ["mpe/simple_spread"], 1, overrides=["algorithm.sequence_length=5"])
    assert len(spec.runs()) == 2


def words_of(out: Path, *more: str) -> list[str]:
    return ["benchmark", "--algorithms", "ippo", "--envs", "mpe/simple_spread", "--out", str(out), *MPE, *more]


def test_the_command_shows_its_runs_and_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words_of(tmp_path / "b", "--seeds", "2", "--dry-run")) == 0
    output = capsys.readouterr().out
    assert "2 runs in" in output and "0 complete; 400 frames to train" in output and "missing" in output
    assert not (tmp_path / "b").exists()
    assert main(words_of(tmp_path / "b", "--dry-run", "--json")) == 0
    assert [run["seed"] for run in json.loads(capsys.readouterr().out)["runs"]] == [0, 1, 2]
    assert main(["benchmark", "--envs", "mpe/simple_spread"]) == 2
    assert "needs a YAML file" in capsys.readouterr().err
    assert main(["benchmark", str(tmp_path / "gone.yaml")]) == 2
    assert "gone.yaml" in capsys.readouterr().err


def test_processes_side_by_side_end_in_the_same_numbers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words_of(tmp_path / "turn", "--seeds", "2", "--no-report", "--quiet")) == 0
    assert main(words_of(tmp_path / "side", "--seeds", "2", "--no-report", "--jobs", "2")) == 0
    printed = capfd.readouterr()
    assert "2 of 2 runs complete" in printed.out and "seed 1: complete" in printed.err and "running: " in printed.err
    scores = [Benchmark.open(tmp_path / name).runs() for name in ("turn", "side")]
    assert [run.metrics for run in scores[0]] == [run.metrics for run in scores[1]]
    assert [run.absolute for run in scores[0]] == [run.absolute for run in scores[1]]


def test_a_signal_saves_what_is_running_and_the_same_line_continues(tmp_path: Path) -> None:
    words = words_of(tmp_path / "b", "--seeds", "1", "--no-report", "frames=2_000_000", "evaluate_every=1000")
    process = subprocess.Popen([sys.executable, "-m", "marlnb", *words], stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "b" / "runs" / "mpe" / "simple_spread" / "ippo" / "seed_0"
    deadline = time.monotonic() + 120
    while not (folder / "metrics.jsonl").exists() or not (folder / "metrics.jsonl").stat().st_size:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 130 and "to continue" in errors
    run = Run.open(folder)
    assert run.status()["state"] == "stopped" and run.checkpoints[-1].frames == run.status()["frames"] > 0


assert toys.CountConfig.name == "toy/count"


@pytest.mark.parametrize(
    ("words", "is_faster"),
    [
        (("algorithm=maddpg", "algorithm.batch_size=340"), True),
        (("algorithm=maddpg", "algorithm.batch_size=342"), False),  # times three agents: 1,026 rows
        (("algorithm=masac", "algorithm.batch_size=32"), False),
        (("algorithm=ippo", "algorithm.minibatch_frames=64"), True),
    ],
)
def test_what_is_faster_together(words: tuple[str, ...], is_faster: bool) -> None:
    experiment = Experiment.compose("env=mpe/simple_spread", "tuned=false", *words)
    assert is_faster_together(experiment) is is_faster


def test_seeds_with_small_minibatches_train_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ["algorithm.epochs=1", "algorithm.minibatch_frames=50"]
    large = ["algorithm=ippo", "algorithm.epochs=1", "algorithm.minibatch_frames=400"]
    together: list[Any] = []
    monkeypatch.setattr(run_benchmark, "run_together", lambda *a, **k: together.extend(a[1]) or run_together(*a, **k))
    result = benchmark(
        None,
        tmp_path / "b",
        algorithms={"ippo": small, "large": large},
        environments=["mpe/simple_spread"],
        seeds=2,
        overrides=[text for text in MPE if not text.startswith("algorithm.")],
        evaluations=2,
        report=False,
        progress=False,
    )
    assert not result.failed and not result.stopped and len(result.runs()) == 4
    assert [run.algorithm for run in together] == ["ippo", "ippo"]
    for run in together:
        assert (tmp_path / "b" / run.folder / "absolute.json").is_file()


def test_damaged_evaluations_of_a_run_are_named(done: Benchmark, tmp_path: Path) -> None:
    folder = shutil.copytree(done.path / "runs" / "toy" / "mortal" / "mappo" / "seed_1", tmp_path / "run")
    final, planned = folder / "absolute.json", BenchmarkRun("toy/mortal", "mappo", 1)
    content = json.loads(final.read_text())
    wrong = [{}, [], {**content, "returns": {}}, {**content, "returns": {"a": []}}, {**content, "seed": {}}]
    for damaged in (*wrong, {**content, "returns": {"a": ["1"]}}, {**content, "returns": [1.0]}):
        final.write_text(json.dumps(damaged))
        with pytest.raises(RunError, match=r"absolute.json (is damaged|cannot be read): "):
            measured(planned, folder)
    final.write_text(json.dumps(content))
    assert measured(planned, folder).absolute
    rows = [parse_line(line, "") for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    for missing in ("frames", "seconds", "returns"):
        changed = [{name: value for name, value in row.items() if name != missing} for row in rows]
        (folder / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
        with pytest.raises(RunError, match=rf"evaluations.jsonl, line 1, is damaged: {missing} has no default"):
            measured(planned, folder)
