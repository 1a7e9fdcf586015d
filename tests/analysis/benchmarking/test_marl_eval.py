"""marl-eval's layout: what BenchMARL wrote is read, and what is written reads the same."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from marlnb.analysis.benchmarking.marl_eval import EvaluatedRun, from_layout, read_marl_eval, to_layout
from marlnb.errors import AnalysisError

BENCHMARL = Path(__file__).parent / "data" / "benchmarl"


def measured(**changes: object) -> EvaluatedRun:
    options: dict[str, object] = {
        "task": "mpe/simple_spread",
        "algorithm": "ippo",
        "seed": 3,
        "frames": (100, 200),
        "seconds": (1.5, 3.0),
        "metrics": {"return": ((-4.0, -2.0), (-1.0, math.nan)), "agent_return": ((-4.0, -2.0), (-1.0, 0.0))},
        "absolute": {"return": (-1.0, -2.0, -3.0)},
    }
    return EvaluatedRun(**{**options, **changes})  # type: ignore[arg-type]


def test_runs_of_benchmarl_are_read() -> None:
    """The files are BenchMARL 1.5.2's own; benchmarks/drivers/benchmarl_json.py makes such."""
    runs = read_marl_eval(BENCHMARL)
    assert [str(run) for run in runs] == [f"pettingzoo/simple_spread, ippo, seed {seed}" for seed in (0, 1)]
    assert runs[1].frames == (200, 400, 600) and runs[1].seconds == (None, None, None)
    assert runs[1].metrics["return"][1] == (-224.375, -185.7501678466797, -87.017333984375)
    assert runs[1].curve()[1] == pytest.approx(-165.714167)
    assert runs[1].score(which="final") == pytest.approx(-176.125389)
    assert runs[1].score(which="best") == pytest.approx(-141.105759)
    assert runs[1].score("agent_return") == runs[1].score("return")
    with pytest.raises(AnalysisError, match="largest single episode"):
        runs[1].score(which="absolute")


def test_what_benchmarl_wrote_is_written_the_same() -> None:
    for path in BENCHMARL.glob("*.json"):
        raw = json.loads(path.read_text())
        assert to_layout(from_layout(raw)) == raw


def test_the_layout_by_hand_and_back() -> None:
    raw = json.loads(json.dumps(to_layout([measured()]), allow_nan=False))
    entry = raw["mpe"]["simple_spread"]["ippo"]["seed_3"]
    assert entry["step_1"] == {
        "step_count": 100,
        "elapsed_time": 1.5,
        "return": [-4.0, -2.0],
        "agent_return": [-4.0, -2.0],
    }
    assert entry["step_2"]["return"] == [-1.0, None] and entry["absolute_metrics"] == {"return": [-1.0, -2.0, -3.0]}
    (back,) = from_layout(raw)
    assert back.absolute == measured().absolute and back.frames == (100, 200) and back.seconds == (1.5, 3.0)
    assert back.score("agent_return") == -0.5 and back.score(which="absolute") == -2.0
    (alone,) = from_layout(to_layout([measured(task="tag")]))
    assert alone.task == "tag"


def test_steps_are_read_in_the_order_of_frames() -> None:
    raw = to_layout([measured(frames=tuple(range(100, 1300, 100)), seconds=(None,) * 12,
                              metrics={"return": tuple((float(k),) for k in range(12))})])  # fmt: skip
    entry = raw["mpe"]["simple_spread"]["ippo"]["seed_3"]
    raw["mpe"]["simple_spread"]["ippo"]["seed_3"] = {
        name: entry[name] for name in sorted(entry)
    }  # step_1, step_10, ...
    assert from_layout(raw)[0].curve().tolist() == list(range(12))


def test_labels_and_new_task_names(tmp_path: Path) -> None:
    names = {"pettingzoo/simple_spread": "mpe/simple_spread"}
    run = read_marl_eval(BENCHMARL / "ippo_simple_spread_seed_0.json", label="BenchMARL", tasks=names)[0]
    assert (run.task, run.algorithm) == ("mpe/simple_spread", "ippo (BenchMARL)")
    with pytest.raises(AnalysisError, match="did you mean 'pettingzoo/simple_spread'"):
        read_marl_eval(BENCHMARL, tasks={"pettingzoo/simple_spred": "x"})
    with pytest.raises(AnalysisError, match="no JSON file with runs"):
        read_marl_eval(tmp_path)
    for name in "ab":
        (tmp_path / f"{name}.json").write_text(json.dumps(to_layout([measured()])))
    with pytest.raises(AnalysisError, match="two runs of mpe/simple_spread, ippo, seed 3"):
        read_marl_eval(tmp_path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"step_1": {"return": [1.0]}}, "e/t/a/seed_0/step_1: step_count must be a number of frames; got None"),
        *(
            ({"step_1": {"step_count": wrong, "return": [1.0]}}, "step_1: step_count must be a number of frames; got ")
            for wrong in (-1, True, 10**30, 1.5, "1")
        ),
        *(
            ({"step_1": {"step_count": 1, "elapsed_time": wrong}}, "elapsed_time must be a number of seconds; got ")
            for wrong in ({}, "1", True, 10**400)
        ),
        ({"step_1": {"step_count": 1, "return": [10**400]}}, "a metric must be a list of numbers"),
        ({"absolute_metrics": [1]}, "seed_0/absolute_metrics: expected a JSON object"),
        ({"step_1": {"step_count": 1, "return": 2.0}}, "seed_0/step_1/return: a metric must be a list of numbers"),
        ({"step_1": {"step_count": 1, "return": []}}, "a metric must be a list"),
        ({"step_1": {"step_count": 1, "x": [1]}, "step_2": {"step_count": 2}}, "step_2: missing x"),
        ([1], "e/t/a/seed_0: expected a JSON object, as in marl-eval.s layout; got list"),
    ],
)
def test_what_is_no_such_layout_is_rejected_with_its_position(entry: object, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        from_layout({"e": {"t": {"a": {"seed_0": entry}}}})


def test_numbers_that_are_not_finite_are_not_known() -> None:
    step = {"step_count": 1, "elapsed_time": math.inf, "return": [1.0, -math.inf, math.nan]}
    (run,) = from_layout({"e": {"t": {"a": {"seed_0": {"step_1": step}}}}})
    assert run.seconds == (None,)
    assert to_layout([run])["e"]["t"]["a"]["seed_0"]["step_1"] == {"step_count": 1, "return": [1.0, None, None]}
    with pytest.raises(AnalysisError, match="expected seed_<number>; got 'seed_٣'"):
        from_layout({"e": {"t": {"a": {"seed_٣": {}}}}})


def test_missing_metrics_are_named() -> None:
    with pytest.raises(AnalysisError, match="did you mean 'agent_return'"):
        measured().curve("agent_retrn")
    with pytest.raises(AnalysisError, match="metric"):
        measured(metrics={}, frames=(), seconds=()).score()
    with pytest.raises(AnalysisError, match="did you mean 'best'"):
        measured().score(which="bst")  # type: ignore[arg-type]
