"""Cycles of train, record, explain and plot in one kernel: what its process holds has to level off."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median

from tests.long_life.kernel import Holdings, running_kernel

WARM_UP = 0.25  # of the cycles: libraries are loaded, caches fill
MAX_MB_PER_CYCLE = 0.1  # single cycles differ by 3 MB, medians of 200 by 0.01 per cycle; a microscope that stays is 0.6
SETUP = """
%matplotlib inline
import shutil
import matplotlib.pyplot as plt
import marlnb as mnb

TINY = ("n_envs=4", "rollout_steps=8", "frames=128", "model.hidden=[8]", "evaluate_every=2", "evaluation_episodes=2",
        "checkpoint_every=2", "algorithm=mappo", "algorithm.epochs=1")
ENVS = {
    "native": ("env=mpe/simple_spread", "env.max_cycles=5"),
    "workers": ("env=pettingzoo/custom", "env.entry_point=tests.envs.sample_envs:Scripted", "env.workers=2"),
}

def train(name, folder, seed, resume=False):
    experiment = mnb.Experiment.compose(*ENVS[name], *TINY, f"seed={seed}")
    return mnb.train(experiment, folder, resume=resume, progress=False)
"""
CYCLE = """
for name in ENVS:
    run = train(name, f"runs/{{name}}", {seed})
    mnb.evaluate(run, episodes=2)
    with mnb.record(run, episodes=6, progress=False) as recording:
        group = recording.groups[0]
        site = next(site for site in recording.sites if site.endswith("actor/hidden_1"))
        attribution = mnb.attribute(recording, group=group, to="action", progress=False)
        table = mnb.tuning(recording, site=site, label="t", agent=attribution.agents[0], n_shuffles=20).table()
        scope = mnb.microscope(recording)
        scope.wait()
        scope.figure()
        scope.close()
    mnb.plots.attribution_bars(attribution, agent=attribution.agents[0])
    metrics = run.metrics()
    returns = next(name for name in metrics if name.startswith("returns/"))
    mnb.plots.learning_curve(metrics["frames"], metrics[returns].to_numpy())
    plt.close("all")
    shutil.rmtree(f"runs/{{name}}")
del run, recording, attribution, table, scope, metrics
"""


def run_cycles(
    n: int, folder: Path, say: Callable[[str], None] = lambda _: None, log: Path | None = None
) -> list[Holdings]:
    """What a kernel holds after each of n cycles, which are also written to a file."""
    holdings = []
    with running_kernel(folder) as kernel:
        kernel.run(SETUP)
        for seed in range(n):
            kernel.run(CYCLE.format(seed=seed))
            holdings.append(kernel.holdings())
            if log is not None:
                with log.open("a") as file:
                    file.write(json.dumps(asdict(holdings[-1])) + "\n")
            if seed % 10 == 0 or seed == n - 1:
                say(f"cycle {seed}: {holdings[-1]}")
    return holdings


def growth(holdings: list[Holdings]) -> dict[str, float]:
    """What grew after the warm-up: counts from its end to the last cycle, and memory in MB per cycle."""
    settled = holdings[max(1, int(WARM_UP * len(holdings))) :]
    grown: dict[str, float] = {
        name: holdings[-1].counts()[name] - max(held.counts()[name] for held in settled[: (len(settled) + 1) // 2])
        for name in holdings[0].counts()
    }
    quarter = max(1, len(settled) // 4)
    first, last = (median(held.memory_mb for held in part) for part in (settled[:quarter], settled[-quarter:]))
    return {**grown, "memory_mb_per_cycle": (last - first) / max(1, len(settled) - quarter)}
