"""Makes the picture at the top of each page of docs/: `python -m docs.images.pages [PAGE ...]`, a few minutes for all.

Figures show the agents of data/, drawn by marlnb's own plots: those of analyses are in `analyses.py`, the others here.
`diagrams.py` has the diagrams of pages without data. A page that is in none of them reuses another page's picture.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

import docs.images.analyses  # noqa: F401  registers its figures
import marlnb as mnb
from benchmarks.tune.scoring import objective
from benchmarks.verify import default_settings
from benchmarks.verify.default_settings import GOAL_S
from docs.images.diagrams import DIAGRAMS
from docs.images.drawing import save, terminal, tiles
from docs.images.trained import FIGURES, ROOT, Trained, of_page
from marlnb import plots
from marlnb.envs.steps import random_actions
from marlnb.plots.canvas import MUTED, OKABE_ITO, finish, heat_map, line_style


@of_page
def environments_mpe(trained: Trained) -> Figure:
    names = sorted(name for name in mnb.ENVIRONMENTS.names() if name.startswith("mpe/simple"))
    return tiles({name.removeprefix("mpe/"): _picture(name, steps=3) for name in names}, columns=5)


@of_page
def environments_batched(trained: Trained) -> Figure:
    """Two seekers walk to the hider, which stays."""
    from tests.examples.batched_environment import Chase

    env = Chase(n_seekers=2).build(1)
    seekers = env.reset(seed=20).groups["seeker"].observation
    pictures = {}
    for number in range(10):
        pictures[f"step {number}"] = env.render(0)
        (dx, dy) = (seekers[..., 2:] - seekers[..., :2]).unbind(-1)
        move = torch.where(dx.abs() > dy.abs(), 1 + (dx > 0).long(), 3 + (dy > 0).long())
        env.step({"seeker": move, "hider": torch.zeros(1, 1, dtype=torch.int64)})
    return tiles({name: pictures[name] for name in ("step 0", "step 4", "step 8")}, columns=3)


@of_page
def environments_tag(trained: Trained) -> Figure:
    return tiles({name: _picture(name, steps=40) for name in ("tag/continuous", "tag/gridworld")}, columns=2, size=2.2)


@of_page
def environments_pettingzoo(trained: Trained) -> Figure:
    steps = {"multiwalker": 10, "pursuit": 20, "knights_archers_zombies": 120, "pistonball": 20, "chess": 12}
    return tiles({name: _picture(f"pettingzoo/{name}", steps=n) for name, n in steps.items()}, columns=5, size=1.9)


def _picture(name: str, steps: int) -> np.ndarray:
    """An environment after some random steps, `[height, width, 3]`."""
    render = ["env.render=true"] if name.startswith("pettingzoo/") else []
    experiment = mnb.Experiment.compose(f"env={name}", *render)
    generator = torch.Generator().manual_seed(1)
    with experiment.env.build(n_envs=1) as env:
        step = env.reset(seed=1)
        for _ in range(steps):
            step = env.step(random_actions(env, step, generator))
        return env.render(0)


@of_page
def evolution(trained: Trained) -> Figure:
    experiment = mnb.Experiment.compose(
        *("env=mpe/simple_spread", "algorithm=ippo", "n_envs=8", "rollout_steps=32", "frames=120_000"),
        *("evolution=tournament", "evolution.population=6", "evaluation_episodes=10", "evolution.founders=drawn"),
    )
    run = mnb.train(experiment, trained.folder / "runs" / "population", progress=False)
    return plots.lineage_tree(run.population, title="Who descends from whom, and how fit they are").figure


@of_page
def environments_turn_based(trained: Trained) -> Figure:
    path = trained.folder / "runs" / "tictactoe"
    frames = ["frames=512", "n_envs=8", "rollout_steps=64"]
    run = mnb.train(mnb.Experiment.compose("env=pettingzoo/tictactoe", "algorithm=ippo", *frames), path, progress=False)
    recording = mnb.record(run, episodes=6, progress=False)
    acting = recording.steps("player", "acting").to_numpy().astype(float)
    starts = np.flatnonzero(recording.rows["t"].to_numpy() == 0)
    ax = plots.panels(1, width=7.4, height=1.9)[0]
    ax.imshow(acting.T, aspect="auto", cmap="Blues", vmin=0, vmax=1.4, interpolation="none")
    for start in starts[1:]:
        ax.axvline(start - 0.5, color=OKABE_ITO[5], linewidth=1.5)
    ax.set_yticks(range(acting.shape[1]), recording.spec.group("player").agents)
    title = "Tic-tac-toe: who acts (blue), and where an episode ends"
    return finish(ax, title=title, x="recorded step", y="", grid="").figure


@of_page
def ground_truth(trained: Trained) -> Figure:
    """The shares in the page's own table."""
    table = _table(ROOT / "docs" / "ground-truth.md", "| analysis |").set_index("analysis")
    shares = table.map(lambda cell: float(cell.split("%")[0]) / 100 if "%" in cell else np.nan)
    ax = plots.panels(1, width=7.6, height=5.2)[0]
    text = np.where(np.isnan(shares), "", [[f"{value:.0%}" for value in row] for row in shares.to_numpy()])
    columns = [name.strip("`") for name in shares.columns]
    heat_map(
        ax, shares.to_numpy(), rows=list(shares.index), columns=columns, label="recovered", text=text, low=0, high=1
    )
    return finish(ax, title="Share of a planted circuit that each analysis finds", x="circuit", y="", grid="").figure


@of_page
def verification(trained: Trained) -> Figure:
    """The returns and targets in the page's own table."""
    table = _table(ROOT / "docs" / "verification.md", "| check |")
    table = table[table["target"] != "none"]
    axes = plots.panels(len(table), width=2.3, height=2.9)
    for ax, (_, row) in zip(axes, table.iterrows()):
        target = _numbers(row["target"])[0]
        ax.axhline(target, color=OKABE_ITO[5], linestyle="--", label="target")
        ax.plot(range(3), _numbers(row["by seed"]), "o", color=OKABE_ITO[0], label="a seed")
        ax.set_xticks(range(3))
        name = re.split("[:,]", row["check"])[0]
        finish(ax, title=name.replace("-", "\n", 1), x="seed", y="return" if ax is axes[0] else "")
    axes[0].legend(frameon=False, fontsize=8)
    return axes[0].figure


@of_page
def tuned_settings(trained: Trained) -> Figure:
    """What training runs reach in a minute that name an environment and an algorithm alone: medians over seeds."""
    by_machine = [default_settings.curves(default_settings.FOLDER / name) for name in ("cpu-avx512", "cpu-genoa")]
    algorithms = sorted({curve.algorithm for measured in by_machine for curve in measured})
    envs = [env for env in dict.fromkeys(curve.env for curve in by_machine[0]) if env in default_settings.GOALS]
    axes = plots.panels(len(envs), width=2.9, height=2.9)
    for ax, env in zip(axes, envs):
        goals = default_settings.GOALS[env]
        for algorithm in goals:
            of_cell = ([c for c in measured if (c.env, c.algorithm) == (env, algorithm)] for measured in by_machine)
            curves = next(filter(None, of_cell))  # of the first machine that trained it
            marks = [points for points in zip(*(c.points for c in curves)) if points[0].seconds < 1.2 * GOAL_S]
            seconds = [median(point.seconds for point in points) for points in marks]
            scores = [median(objective(env, point.greedy) for point in points) for points in marks]
            style = line_style(algorithms.index(algorithm))
            ax.plot(seconds, scores, **style, markersize=4, linewidth=1.4, label=algorithm.upper())
        for goal in set(goals.values()):
            ax.axhline(goal, color=MUTED, linewidth=0.8, linestyle=":")
        name = env.removeprefix("mpe/simple_").replace("_", " ")
        finish(ax, title=name, x="seconds of training", y="greedy return" if ax is axes[0] else "")
    lines = {line.get_label(): line for ax in axes for line in ax.get_legend_handles_labels()[0]}
    axes[0].figure.legend(
        lines.values(), lines, loc="outside lower center", ncols=len(lines), frameon=False, fontsize=9
    )
    return axes[0].figure


def _table(page: Path, start: str) -> pd.DataFrame:
    """The first table of a page whose header begins like this."""
    lines = page.read_text(encoding="utf-8").split("\n")
    first = next(k for k, line in enumerate(lines) if line.startswith(start))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return pd.DataFrame(rows[2:], columns=rows[0])


def _numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text.replace("−", "-"))]


@of_page
def command_line(trained: Trained) -> Figure:
    trained.run("speaker_listener", copy="talk")
    return trained.shell("marlnb evaluate runs/talk --episodes 300", "marlnb list algorithms")


@of_page
def no_internet(trained: Trained) -> Figure:
    shutil.copytree(ROOT / "notebooks", trained.folder / "notebooks", dirs_exist_ok=True)
    return trained.shell("marlnb doctor notebooks/quickstart.ipynb --on local")


@of_page
def teaching(trained: Trained) -> Figure:
    answer = "lambda dx, dy: -((dx**2 + dy**2) ** 0.5)"
    result = subprocess.run(
        [sys.executable, "-c", f"from marlnb.teaching import check; print(check('1.5', {answer}))"],
        text=True,
        capture_output=True,
    )
    return terminal(f"$ check('1.5', {answer})\n{result.stdout}{result.stderr}")


def main(pages: list[str]) -> None:
    names = sorted({*FIGURES, *DIAGRAMS})
    if not set(pages) <= set(names):
        raise SystemExit(f"no picture of {sorted(set(pages) - set(names))}; there are {names}")
    with tempfile.TemporaryDirectory() as folder:
        trained = Trained(Path(folder))
        for page in pages or names:
            path = save(DIAGRAMS[page]() if page in DIAGRAMS else FIGURES[page](trained), page)
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
