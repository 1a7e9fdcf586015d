"""The cost of a league: AlphaStar's with four learning players, compared with plain self-play, per environment step.

connect_four: one main, one main exploiter and two league exploiters. simple_tag: two mains and two main exploiters, one
of each for either side. Plain self-play is the same training without a league: one network for both seats of
connect_four, one for each group of simple_tag. CPU seconds of a whole iteration, one thread, environments in the same
process, updates without compiled code. The two take turns, in both orders; before that the league plays until it has
snapshots. Target: 1.15 times. A league pays for its opponents at each step of all environments: one more product, whose
weights are those of all opponents in play. So the share of this falls with the number of environments: 32 are marlnb's
default, 8 are few.

Memory: 1,000 snapshots of a policy of 100,000 parameters on disk, each drawn once as an opponent in one of 8
environments; by how much the process grows. Target: 10 MB.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import numpy as np
import psutil
import torch

from benchmarks.table import Row, report
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import ActContext
from marlnb.populations.training.league.stacked_opponents import HOME, Opponent, StackedOpponents
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec
from marlnb.training.learners import build_learner
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

ROLLOUT_FRAMES = 1_000
SNAPSHOT_FRAMES = 2_000  # few, so that past players are met soon
COMMON = (
    *("algorithm=ippo", "tuned=false", "model.hidden=[256,256]", "algorithm.minibatch_frames=400"),
    *("algorithm.epochs=4", "frames=100_000_000", "checkpoint_every=1_000_000"),
    "compile=never",  # as leagues, and turn-based games without one
)
ENVS = {
    "connect_four": ("env=pettingzoo/connect_four", "env.workers=0"),
    "simple_tag": ("env=mpe/simple_tag",),
}
LEAGUES = {
    "connect_four": ("league=alphastar",),
    "simple_tag": ("league=alphastar", "league.league_exploiter.count=0"),
}
ROLES = ("main", "main_exploiter", "league_exploiter")
MAX_RATIO = 1.15
MAX_GROWTH_MB = 10.0


def trainer(env: str, league: bool, n_envs: int, folder: Path) -> Trainer:
    """A training run of one environment, with a league or without; an iteration has about ROLLOUT_FRAMES."""
    words = [*ENVS[env], *COMMON, f"n_envs={n_envs}", f"rollout_steps={ROLLOUT_FRAMES // n_envs}"]
    if league:
        words += [*LEAGUES[env], *(f"league.{role}.snapshot_frames={SNAPSHOT_FRAMES}" for role in ROLES)]
    experiment = Experiment.compose(*words)
    return Trainer(experiment, Run.create(folder / f"{env}-{'league' if league else 'plain'}", experiment))


def measure(env: str, n_envs: int, repetitions: int, warm_up: int) -> list[Row]:
    """CPU milliseconds per 1,000 environment steps; a repetition is one turn of each of the four players."""
    spent: dict[str, list[float]] = {"self-play": [], "league": []}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running = {
            name: stack.enter_context(trainer(env, name == "league", n_envs, Path(folder)))
            for name in ("self-play", "league")
        }
        for _ in range(4 * warm_up):
            next(running["league"])
        next(running["self-play"])
        n_frames = 4 * running["league"].experiment.iteration_frames
        for repetition in range(repetitions):
            for name in sorted(running, reverse=bool(repetition % 2)):
                start = time.process_time()
                for _ in range(4):
                    next(running[name])
                spent[name].append(1e6 * (time.process_time() - start) / n_frames)
        league = running["league"].run.league
        counts = f"{len(league.history.playing)} players and snapshots, {len(league.matches()):,} matches"
        print(f"{env}, {n_envs} environments: {counts}")
    plain, ours = (Row(name, tuple(values), "CPU ms per 1,000 steps") for name, values in spent.items())
    return [plain, Row(ours.what, ours.values, ours.unit, against=plain.what, target=MAX_RATIO, at_most=True)]


def measure_memory(n_snapshots: int = 1000, n_envs: int = 8) -> Row:
    """Megabytes by which the process grows while all snapshots act once."""
    group = GroupSpec("player", ("player_0", "player_1"), ObservationSpec((84,)), ActionSpec("discrete", (7,)))
    spec = EnvSpec("game", (group,), simultaneous=False)
    experiment = Experiment.compose("env=matrix/climbing", "algorithm=ippo", "model.hidden=[276,276]", "tuned=false")
    policy = build_learner(experiment, spec, group).policy
    actor = {f"actor.{name}": tensor for name, tensor in policy.actor.state_dict().items()}  # type: ignore[union-attr]
    n_parameters = sum(tensor.numel() for tensor in actor.values())
    with tempfile.TemporaryDirectory() as folder:
        store = SnapshotStore(Path(folder), spec)
        hashes = []
        for k in range(n_snapshots):
            actor["actor.log"] = torch.tensor(float(k))  # so that each has another content
            hashes.append(store.write("main_0", k, {"player": actor}))

        def load(name: str) -> Opponent:
            weights = store.read(name, hashes[int(name)])["player"]
            named = {key.removeprefix("actor."): value for key, value in weights.items() if key != "actor.log"}
            return Opponent(policy, "mlp", named, is_final=True)

        opponents = StackedOpponents(group, n_envs, load)
        names = np.full((n_envs, 2), HOME, dtype=object)
        observation, action = torch.zeros(n_envs, 2, 84), torch.zeros(n_envs, 2, dtype=torch.int64)
        process = psutil.Process()
        for k in range(n_snapshots):
            if k == n_envs:
                before = process.memory_info().rss  # with one round of opponents
            names[k % n_envs, 1] = str(k)
            opponents.seat(names)
            opponents.act(observation, action, ActContext())
        grown = (process.memory_info().rss - before) / 1e6
    print(f"{n_parameters:,} parameters; stacked weights {opponents.size_bytes / 1e6:.1f} MB")
    return Row(f"{n_snapshots} snapshots", (grown,), "MB", target=MAX_GROWTH_MB, at_most=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("speed", "memory", "all"), default="all")
    parser.add_argument("--envs", nargs="+", choices=tuple(ENVS), default=tuple(ENVS))
    parser.add_argument("--n-envs", nargs="+", type=int, default=(8, 32), help="environments (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=10, help="turns of each player that are measured")
    parser.add_argument("--warm-up", type=int, default=8, help="turns of each player before")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.part in ("memory", "all"):
        report("league-memory", "Growth of a process that meets 1,000 snapshots", [measure_memory()])
    for env, n_envs in product(arguments.envs, arguments.n_envs) if arguments.part in ("speed", "all") else ():
        rows = measure(env, n_envs, arguments.repetitions, arguments.warm_up)
        title = f"A league of four learning players on {env}, {n_envs} environments"
        report(f"league-{env}-{n_envs}", title, rows)


if __name__ == "__main__":
    main()
