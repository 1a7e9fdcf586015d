"""Populations whose members have training runs of their own: they meet through files alone, and none waits."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import marlnb as mnb
from marlnb.cli import main
from marlnb.errors import ConfigError, RunError
from marlnb.experiment import Experiment
from marlnb.plots.populations.lineage import lineage_tree
from marlnb.populations.training.evolution.evolving_member import Member
from marlnb.populations.training.evolution.loop import EvolutionLoop
from marlnb.training.loop import DivergedError
from marlnb.training.runs.files import line_of, parse_line
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from marlnb.training.trainer import Trainer

WORDS = (
    *("env=mpe/simple_spread", "algorithm=ippo", "algorithm.epochs=1", "model.hidden=[8]", "n_envs=2"),
    *("rollout_steps=8", "evolution=tournament", "evolution.population=3", "evolution.generation_frames=32"),
    *("evolution.probability.none=0", "evaluation_episodes=2", "checkpoint_every=3", "frames=500"),
)


def _experiment(member: int, *words: str) -> Experiment:
    return Experiment.compose(*WORDS, f"evolution.member={member}", *words)


def _start(member: int, path: Path, *words: str) -> Trainer:
    experiment = _experiment(member, *words)
    return Trainer(experiment, Run.create(path, experiment))


def _only_member(trainer: Trainer) -> Member:
    assert isinstance(trainer.loop, EvolutionLoop)
    (member,) = trainer.loop.members
    return member


def _assert_same(a: Run, b: Run) -> None:
    for name in ("lineage.jsonl", "received.jsonl"):
        assert (a.path / "population" / name).read_text() == (b.path / "population" / name).read_text(), name
    ours, theirs = (run.policies()["agent"].state_dict() for run in (a, b))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def _replay(run: Run, folder: Path) -> Run:
    """Trains again, in a folder without neighbours, with the log of what was read and the parents' learners alone."""
    (folder / "population").mkdir(parents=True)
    shutil.copy(run.path / "experiment.json", folder)
    shutil.copy(run.path / "population" / "received.jsonl", folder / "population")
    shutil.copytree(run.path / "population" / "parents", folder / "population" / "parents")
    return resume(folder, progress=False)


def test_trainings_of_single_members_make_one_population(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "population"
    words = (*WORDS, "evolution.member=0,1", f"run={folder}")  # a third has not begun
    command = (sys.executable, "-m", "marlnb", "train", *words, "--jobs", "2", "--quiet")
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    runs = [Run.open(folder / f"evolution.member={member}") for member in range(2)]
    population = runs[1].population
    rows = population.lineage()
    assert {row.member for row in rows} == {0, 1} and rows == runs[0].population.lineage()
    for position, row in enumerate(rows):
        assert row.parent_id is None or row.parent_id in [before.id for before in rows[:position]]
    for member, run in enumerate(runs):
        own = sorted((row for row in rows if row.member == member), key=lambda row: row.generation)
        assert [row.generation for row in own] == list(range(len(own))) and run.status()["frames"] >= 500
    best = population.best
    assert best.row.fitness == max(member.row.fitness for member in population.members)
    seeds = {"episodes": 2, "seed": best.row.evaluation_seed}
    winner = population.winner(tmp_path / "winner")
    for source in (best, runs[best.row.member], winner):
        assert mnb.evaluate(source, **seeds).return_mean["agent"] == pytest.approx(best.row.score)
    assert len(lineage_tree(population).get_lines()) == 1 and best.schedule()
    assert main(["info", str(runs[0].path)]) == 0
    assert f"fittest {best.id}" in capsys.readouterr().out


def test_a_child_of_another_training_has_its_parents_learners_and_is_replayed(tmp_path: Path) -> None:
    trainers = [_start(member, tmp_path / "all" / str(member)) for member in range(3)]
    for turn in range(14):  # the third one is slower
        for trainer in trainers[: 2 + turn % 2]:
            next(trainer)
    for trainer in trainers:
        trainer.close()
    runs = [trainer.run for trainer in trainers]
    rows = {row.id: row for row in runs[0].population.lineage()}
    children = [row for row in rows.values() if row.parent not in (None, row.member)]
    assert len({row.member for row in children}) > 1
    assert any(row.parent_generation is not None for row in children)
    for child in children:
        parent = rows[child.parent_id]
        assert child.frames == parent.frames + 32 and child.seed != parent.seed
        assert {path: old for path, (old, _) in child.changes.items()}.items() <= parent.options.items()
    for member, run in enumerate(runs):
        n_children = sum(row.member == member for row in children) + 1  # in the generation that has begun
        assert len(list((run.path / "population" / "parents" / "snapshots").iterdir())) <= n_children
        assert len(list((run.path / "population" / "offered" / "snapshots").iterdir())) == 2
        whole = resume(run, progress=False)
        _assert_same(whole, _replay(whole, tmp_path / "replays" / str(member) / "run"))


def test_a_lost_training_delays_no_other_and_resumes_from_its_log(tmp_path: Path) -> None:
    trainers = [_start(member, tmp_path / "all" / str(member)) for member in range(2)]
    for _ in range(8):
        for trainer in trainers:
            next(trainer)
    other, lost = trainers
    lost._saver.iteration = lost.iteration  # as a kill would: nothing is saved at the end
    lost.close()
    for _ in other:
        pass
    log = lost.run.path / "population" / "received.jsonl"
    before = log.read_text()
    resumed = resume(lost.run.path, progress=False)
    assert log.read_text().startswith(before) and resumed.status()["state"] == "complete"
    _assert_same(resumed, _replay(resumed, tmp_path / "replays" / "run"))


def test_a_member_that_diverges_is_replaced_by_a_child_of_another_training(tmp_path: Path) -> None:
    healthy, ill = (_start(member, tmp_path / "all" / str(member)) for member in range(2))
    for _ in range(2):
        next(healthy)
    with torch.no_grad():
        next(_only_member(ill).policies["agent"].critic.parameters()).fill_(torch.nan)
    for trainer in (ill, healthy):
        with trainer:
            for _ in trainer:
                pass
    rows = sorted((row for row in ill.run.population.lineage() if row.member == 1), key=lambda row: row.generation)
    assert "not finite" in rows[0].note and rows[0].fitness is None
    saved = next(row for row in rows if row.fitness is not None)  # by the first tournament that the healthy one won
    assert saved.parent == 0 and all(row.parent == 1 for row in rows[1 : saved.generation])


def test_a_member_that_diverges_alone_ends_its_training(tmp_path: Path) -> None:
    with _start(1, tmp_path / "1") as trainer:
        with torch.no_grad():
            next(_only_member(trainer).policies["agent"].critic.parameters()).fill_(torch.nan)
        with pytest.raises(DivergedError, match="no other member of the population could take its place"):
            for _ in trainer:
                pass


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("evolution.member=3",), r"evolution\.member=3 is not in a population of 3; valid: 0 to 2"),
        (("evolution.member=0", "evolution.together=true"), r"evolution\.together=true needs one run of all"),
        (("evolution.member=0", "evolution.fitness=nash"), r"evolution\.fitness=nash needs one run of all"),
    ],
)
def test_wrong_options(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.compose(*WORDS, *words)


def test_wrong_neighbours(tmp_path: Path) -> None:
    train(_experiment(0, "frames=100"), tmp_path / "a" / "0", progress=False)
    with pytest.raises(ConfigError, match="both train member 0 of one population"):
        train(_experiment(0, "frames=100"), tmp_path / "a" / "1", progress=False)
    train(_experiment(0, "frames=100"), tmp_path / "b" / "0", progress=False)
    with pytest.raises(ConfigError, match=r"another population: algorithm\.clip: 0\.2 there, 0\.3 here"):
        train(_experiment(1, "frames=100", "algorithm.clip=0.3"), tmp_path / "b" / "1", progress=False)
    run = train(_experiment(1, "frames=200", "seed=1"), tmp_path / "c" / "1", progress=False)
    lines = (run.path / "population" / "lineage.jsonl").read_text().splitlines()
    rows = [parse_line(line, "") | ({"parent": 2} if number else {}) for number, line in enumerate(lines)]
    (run.path / "population" / "lineage.jsonl").write_text("".join(f"{line_of(row)}\n" for row in rows))
    with pytest.raises(RunError, match="0-2, the parent of 1-1, is in no folder next to"):
        run.population.ancestors("1-1")
