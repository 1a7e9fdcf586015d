"""The benchmark's report: executed over small runs and BenchMARL's, with every figure."""

from __future__ import annotations

from pathlib import Path

import nbformat

from marlnb.batch.benchmark.run_benchmark import NOTEBOOK, benchmark

ROOT = Path(__file__).parents[2]
BENCHMARL = {
    "path": ROOT / "tests" / "analysis" / "benchmarking" / "data" / "benchmarl",
    "label": "BenchMARL",
    "tasks": {"pettingzoo/simple_spread": "mpe/simple_spread"},
}
SMALL = (
    *("frames=800", "n_envs=8", "rollout_steps=25", "algorithm.epochs=1", "algorithm.minibatch_frames=100"),
    *("model.hidden=[8]", "evaluation_episodes=4"),
)


def test_the_report_is_the_notebook_of_the_folder() -> None:
    assert (ROOT / "notebooks" / "benchmark.ipynb").resolve() == NOTEBOOK.resolve()


def test_the_report_compares_what_was_run_here_and_elsewhere(tmp_path: Path) -> None:
    result = benchmark(
        out=tmp_path / "b",
        algorithms=["ippo", "mappo"],
        environments=["mpe/simple_spread"],
        seeds=2,
        overrides=SMALL,
        evaluations=4,
        compare=[BENCHMARL],
        progress=False,
    )
    executed = nbformat.read(result.report, 4)
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    figures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(figures) == 5  # one task, all tasks, aggregates, profiles, improvement
    printed = "".join(output.get("text", "") for output in outputs)
    assert "4 of 4 runs complete, 2 external" in printed
    assert "mpe/simple_spread: 0 = random (-26.4), 1 = scripted oracle (-7.67)" in printed
    assert "image/png" in result.report.with_suffix(".html").read_text(encoding="utf-8")
