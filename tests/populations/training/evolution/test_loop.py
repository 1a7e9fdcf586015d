"""Populations that train: resuming, inheritance, the winner, and errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import marlnb as mnb
from marlnb.cli import main
from marlnb.errors import CheckpointError, ConfigError, RunError
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer
from tests.populations.training.nested import values

SMALL = (
    "env=mpe/simple_spread", "algorithm=ippo", "algorithm.epochs=1", "model.hidden=[8]", "n_envs=2", "rollout_steps=8",
    "evolution=tournament", "evolution.population=3", "evolution.generation_frames=32", "evaluation_episodes=2",
)  # fmt: skip
OFF_POLICY = (
    *("algorithm=maddpg", "algorithm.learning_starts=16", "algorithm.updates=2", "algorithm.batch_size=16"),
    "algorithm.buffer_frames=1000",
)


def _small(*overrides: str) -> tuple[str, ...]:
    """SMALL with overrides, without the option that MADDPG has not."""
    words = (*SMALL, *overrides)
    return tuple(word for word in words if "epochs" not in word or OFF_POLICY[0] not in words)


def _result(path: Path) -> tuple[str, dict[str, Any]]:
    state = dict(values(Run.open(path).checkpoint().load()))
    return (path / "population" / "lineage.jsonl").read_text(), {k: v for k, v in state.items() if "seconds" not in k}


def _assert_equal(first: Path, second: Path) -> None:
    (lineage, state), (other_lineage, other_state) = _result(first), _result(second)
    assert lineage == other_lineage and len(lineage.splitlines()) > 6
    assert state.keys() == other_state.keys()
    for key, value in state.items():
        other = other_state[key]
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, key


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("evolution.together=true", "algorithm.minibatch_frames=8"),
        OFF_POLICY,
        ("evolution.together=true", *OFF_POLICY),
        ("evolution.shared_replay=true", *OFF_POLICY[:-1], "algorithm.buffer_frames=64"),
        ("evolution.together=true", "evolution.shared_replay=true", "evolution.mutable=[batch_size]", *OFF_POLICY),
    ],
)
def test_a_resumed_population_has_the_same_bits(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    experiment = Experiment.compose(*_small(*overrides), "frames=700", "checkpoint_every=4", "keep_checkpoints=0")
    mnb.train(experiment, tmp_path / "whole", progress=False)
    for kill_at in (7, 10):  # it resumes before a selection, and after one
        path = tmp_path / str(kill_at)
        trainer = Trainer(experiment, Run.create(path, experiment))
        for _ in range(kill_at):
            next(trainer)
        trainer._saver.iteration = trainer.iteration  # as a kill would: nothing is saved at the end
        trainer.close()
        mnb.resume(path, progress=False)
        _assert_equal(tmp_path / "whole", path)


@pytest.mark.parametrize(
    ("n_before", "frames", "n_after", "ends"),
    [(6, 3200, 10, [48, 48 + 80]), (9, 3200, 3, [48, 48 + 48]), (9, 640, 99, [48, *range(48 + 32, 161, 16)])],
)
def test_a_population_resumes_with_other_frames(
    tmp_path: Path, n_before: int, frames: int, n_after: int, ends: list[int]
) -> None:
    """`frames` decides how long a generation is: with 1920, three turns of 16 frames; with 3200 five, with 640 one."""
    words = (*SMALL, "evolution.population=2", "evolution.generation_frames=0", "evaluation_episodes=1")
    first = Experiment.compose(*words, "frames=1920")
    run = Run.create(tmp_path / "run", first)
    for experiment, n_iterations in ((first, n_before), (replace(first, frames=frames), n_after)):
        with Trainer(experiment, run) as trainer:
            for _ in zip(range(n_iterations), trainer):
                pass
    rows = run.population.lineage()
    assert [row.id for row in rows] == [f"{k}-{member}" for k in range(len(ends)) for member in range(2)]
    assert [row.frames for row in rows] == [end for end in ends for _ in range(2)]
    assert run.status()["state"] == ("complete" if frames == 640 else "stopped")


def test_a_child_has_its_parents_weights_and_moments(tmp_path: Path) -> None:
    overrides = ("evolution.size=3", "evolution.probability.none=0", "evolution.mutable=[lr]")
    experiment = Experiment.compose(*SMALL, *overrides, "frames=700")
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        loop = trainer.loop
        while not loop.may_end:
            next(trainer)
        parents = [member.loop.learners["agent"].state_dict() for member in loop.members]
        loop._next_generation()
        rows = [member.row for member in loop.members]
        child = next(row for row in rows if row.operator == "hyperparameters" and row.parent != row.member)
        state, parent = loop.members[child.member].loop.learners["agent"].state_dict(), parents[child.parent]
        for part in ("policy", "optimizer"):
            for key, value in values(parent[part]):
                other = dict(values(state[part]))[key]
                assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, key
        assert float(parent["optimizer"]["actor"]["mean"].abs().sum()) > 0
        assert not torch.equal(state["shuffler"], parent["shuffler"])
        old, new = child.changes["algorithm.lr"]
        assert loop.members[child.member].loop.learners["agent"].config.lr == new != old
        assert loop.members[child.member].experiment.seed == child.seed != rows[child.parent].seed


def test_the_lineage_says_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SMALL, "frames=1000", f"run={tmp_path / 'run'}"]) == 0
    assert "generation" in capsys.readouterr().err
    assert main(["info", str(tmp_path / "run")]) == 0
    assert "tournament, 3 members" in capsys.readouterr().out
    run = Run.open(tmp_path / "run")
    population = run.population
    rows = population.lineage()
    n_generations = rows[-1].generation + 1
    assert len(rows) == 3 * n_generations and {row.evaluation_seed for row in rows} == {rows[0].evaluation_seed}
    evaluation_frames = sum(25 * len(row.returns["agent"]) for row in rows)
    assert run.status()["frames"] == 96 * n_generations + evaluation_frames >= 1000
    for row in rows:
        assert row.score == pytest.approx(sum(row.returns["agent"]) / 2)
        if row.generation:
            parent = population[row.parent_id].row
            assert row.frames == parent.frames + 32
            assert {path: old for path, (old, _) in row.changes.items()}.items() <= parent.options.items()
            last = [r.score for r in population.ancestors(row.id)][-3:]
            assert row.fitness == pytest.approx(sum(last) / len(last))
    best = population.best
    assert best.row.fitness == max(row.fitness for row in rows[-3:])
    seeds = {"episodes": 2, "seed": best.row.evaluation_seed}
    assert mnb.evaluate(best, **seeds).return_mean == mnb.evaluate(run, **seeds).return_mean
    assert mnb.evaluate(best, **seeds).return_mean["agent"] == pytest.approx(best.row.score)
    assert best.schedule()[0][0] == 0 and dict(best.schedule()[-1][1]) == best.row.options
    winner = population.winner(tmp_path / "winner")
    assert mnb.evaluate(winner, **seeds).return_mean == mnb.evaluate(run, **seeds).return_mean
    assert winner.experiment.evolution is None and winner.experiment.algorithm.lr == best.row.options["algorithm.lr"]
    longer = mnb.resume(winner, frames=winner.status()["frames"] + 16, progress=False)
    assert longer.status()["state"] == "complete"
    assert len(population.to_frame()) == len(rows) and best.id in repr(population)


def test_a_winner_is_written_after_a_generation_only(tmp_path: Path) -> None:
    experiment = Experiment.compose(*SMALL, "frames=700")
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        for _ in range(8):
            next(trainer)
    population = Run.open(tmp_path / "run").population
    with pytest.raises(RunError, match="stopped within generation 1"):
        population.winner(tmp_path / "winner")
    assert not (tmp_path / "winner").exists() and population.best.row.generation == 0
    mnb.resume(tmp_path / "run", progress=False)
    assert population.winner(tmp_path / "winner").status()["frames"] == population.best.row.frames


def test_founders_are_drawn_and_the_first_has_the_given_options(tmp_path: Path) -> None:
    experiment = Experiment.compose(*SMALL, "evolution.founders=drawn", "frames=300")
    run = mnb.train(experiment, tmp_path / "run", progress=False)
    founders = run.population.lineage()[:3]
    assert founders[0].options["algorithm.lr"] == experiment.algorithm.lr
    rates = {row.options["algorithm.lr"] for row in founders}
    assert len(rates) == 3 and all(1e-5 <= rate <= 1e-2 for rate in rates)


def test_drawn_options_of_a_founder_that_do_not_fit_are_an_error_that_says_so(tmp_path: Path) -> None:
    small = ("algorithm.batch_size=8", "algorithm.buffer_frames=64", "evolution.founders=drawn")
    experiment = Experiment.compose(*_small(*OFF_POLICY), *small, "env.continuous_actions=true")
    message = (
        r"larger than the replay buffer, buffer_frames=64; algorithm\.batch_size=\d+ was drawn for member 1: limit "
        r"what is drawn with evolution\.ranges\.batch_size=\[MIN,MAX\], or use evolution\.founders=equal"
    )
    with pytest.raises(ConfigError, match=message):
        mnb.train(experiment, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_target_ends_a_population(tmp_path: Path) -> None:
    experiment = Experiment.compose(*SMALL, "frames=100_000", "target_return=-1000")
    run = mnb.train(experiment, tmp_path / "run", progress=False)
    assert run.status()["state"] == "complete" and len(run.population.lineage()) == 3


@pytest.mark.parametrize(
    ("env", "words", "message"),
    [
        ("mpe/simple_tag", (), "target_group=adversary or target_group=agent; or, where the groups compete, .*nash"),
        ("tree/kuhn_poker", (), "'player' play against each other: .* evolution.fitness=win_rate with .*nash"),
        ("tree/kuhn_poker", ("target_group=player",), "'player' play against each other: .*win_rate with .*nash"),
    ],
)
def test_returns_that_are_no_fitness_are_errors_before_the_training(
    tmp_path: Path, env: str, words: tuple[str, ...], message: str
) -> None:
    experiment = Experiment.compose(f"env={env}", *SMALL[1:], "frames=1000", *words)
    run = Run.create(tmp_path / "run", experiment)
    with pytest.raises(ConfigError, match=message):
        Trainer(experiment, run)
    assert not run.metrics().size


def test_errors_name_what_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="population=3 members of 32 frames each"):
        mnb.train(Experiment.compose(*SMALL, "frames=90"), tmp_path / "short", progress=False)
    words = _small(*OFF_POLICY, "algorithm.learning_starts=33", "frames=96")
    with pytest.raises(ConfigError, match=r"learn nothing.* 96 \(frames=96\), 32 for each of 3 members"):
        Experiment.compose(*words).check_without_env()
    Experiment.compose(*words, "evolution.member=0").check_without_env()
    with pytest.raises(ConfigError, match="not both"):
        Experiment.compose(*SMALL, "league=self_play")
    run = mnb.train(Experiment.compose(*SMALL, "frames=100"), tmp_path / "run", progress=False)
    with pytest.raises(RunError, match="9-9"):
        _ = run.population["9-9"]
    with pytest.raises(RunError, match="without evolution="):
        _ = run.population.winner(tmp_path / "winner").population


def test_networks_mutate_resume_and_open(tmp_path: Path) -> None:
    kinds = ("none", "hyperparameters", "width", "depth", "activation", "parameters")
    probability = [f"evolution.probability.{kind}={int(kind not in kinds[:2])}" for kind in kinds]
    overrides = (*SMALL, *probability, "model.activation=relu", "evolution.new_units=[2,4]", "evolution.elites=0")
    experiment = Experiment.compose(*overrides, "frames=2000", "checkpoint_every=4", "keep_checkpoints=0")
    run = mnb.train(experiment, tmp_path / "whole", progress=False)
    rows = run.population.lineage()
    operators = {row.operator for row in rows}
    assert {"width", "depth", "activation", "parameters"} <= operators
    for row in rows:
        if row.operator in ("width", "depth"):
            assert row.output_change < 1e-5
        elif row.operator in ("activation", "parameters"):
            assert row.output_change > 1e-4
    assert "weights of the actor changed" in next(row.note for row in rows if row.operator == "parameters")
    best = run.population.best
    seeds = {"episodes": 2, "seed": best.row.evaluation_seed}
    winner = run.population.winner(tmp_path / "winner")
    for source in (run, best, winner):
        assert mnb.evaluate(source, **seeds).return_mean["agent"] == pytest.approx(best.row.score)
    trainer = Trainer(experiment, Run.create(tmp_path / "killed", experiment))
    for _ in range(14):
        next(trainer)
    trainer._saver.iteration = trainer.iteration
    trainer.close()
    mnb.resume(tmp_path / "killed", progress=False)
    _assert_equal(tmp_path / "whole", tmp_path / "killed")


COMPETITIVE = (
    *("env=tests.populations.training.games:RockPaperScissors", "env.steps=3", *SMALL[1:]),
    *("frames=300", "evaluation_episodes=20"),
)


def test_the_fitness_of_competitors_is_their_win_rate_against_fixed_opponents(tmp_path: Path) -> None:
    games = [text for text in COMPETITIVE if "evolution" not in text or "evaluation" in text]
    opponent = mnb.train(Experiment.compose(*games), tmp_path / "opponent", progress=False)
    overrides = (*COMPETITIVE, "evolution.fitness=win_rate", f"evolution.references=[random,{opponent.path}]")
    run = mnb.train(Experiment.compose(*overrides), tmp_path / "run", progress=False)
    rows = run.population.lineage()
    for row in rows:
        outcomes = row.returns
        assert set(outcomes) == {"random", str(opponent.path)} and len(outcomes["random"]) == 20
        assert row.score == pytest.approx(sum(sum(each) / 20 for each in outcomes.values()) / 2)
        assert 0 <= row.score <= 1
    assert not run.population.winner(tmp_path / "winner").checkpoint().returns  # scores are win rates, no returns
    assert not run.checkpoint().returns and "greedy not evaluated" in repr(run)
    with pytest.raises(ConfigError, match=r"target_return=0\.4 cannot be reached with evolution\.fitness=win_rate"):
        mnb.train(Experiment.compose(*overrides, "target_return=0.4"), tmp_path / "target", progress=False)
    assert run.status()["frames"] == sum(16 * 2 + 3 * 40 for _ in rows)


def test_references_stay_the_same_when_their_run_trains_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    games = [text for text in COMPETITIVE if "evolution" not in text or "evaluation" in text]
    games += ["algorithm.lr=1", "frames=16"]
    opponent = mnb.train(Experiment.compose(*games), tmp_path / "opponent", progress=False)
    words = (*COMPETITIVE, "evolution.fitness=win_rate", "evolution.references=[opponent]")
    whole = mnb.train(Experiment.compose(*words, "frames=600"), tmp_path / "whole", progress=False)
    run = mnb.train(Experiment.compose(*words), tmp_path / "resumed", progress=False)
    monkeypatch.chdir("elsewhere")
    assert run.experiment.evolution.references == (str(tmp_path / "opponent"),)
    mnb.resume(opponent, frames=3000, progress=False)
    assert mnb.resume(run, frames=600, progress=False).population.lineage() == whole.population.lineage()
    with Trainer.resume(run) as trainer:
        assert trainer.loop._judge._undecided_matches is None  # the sides compete, and are not checked again


def test_nash_averaging_over_the_population(tmp_path: Path) -> None:
    run = mnb.train(Experiment.compose(*COMPETITIVE, "evolution.fitness=nash"), tmp_path / "run", progress=False)
    rows = run.population.lineage()[:3]
    assert rows[1].returns["member_0"] == [1 - outcome for outcome in rows[0].returns["member_1"]]
    assert max(row.score for row in rows) == pytest.approx(0, abs=1e-6) and all(row.score <= 1e-6 for row in rows)


@pytest.mark.parametrize("game", [("RockPaperScissors", "env.steps=3"), ("Majority",)], ids=["two", "three sides"])
def test_equal_members_are_equally_fit(game: tuple[str, ...], tmp_path: Path) -> None:
    env = (f"env=tests.populations.training.games:{game[0]}", *game[1:])
    equal = ("evolution.founders=equal", "algorithm.lr=1e-8", "evolution.fitness=nash", "seed=1")
    run = mnb.train(Experiment.compose(*env, *COMPETITIVE[2:], *equal), tmp_path / "run", progress=False)
    rows = run.population.lineage()
    assert {row.score for row in rows} == {0} and set(rows[0].returns["member_1"]) > {0.0, 1.0}


def test_the_only_member_that_did_not_diverge_continues_without_opponents(tmp_path: Path) -> None:
    experiment = Experiment.compose(*COMPETITIVE, "evolution.fitness=nash")
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        for member in trainer.loop.members[1:]:
            with torch.no_grad():
                next(member.policies["player"].critic.parameters()).fill_(torch.nan)
        for _ in trainer:
            pass
    rows = trainer.run.population.lineage()
    assert [row.score for row in rows[:3]] == [0, None, None] and rows[-1].generation == 1
    assert trainer.run.status()["state"] == "complete"


def test_opponents_keep_their_numbers_when_a_member_diverges(tmp_path: Path) -> None:
    experiment = Experiment.compose(*COMPETITIVE, "evolution.fitness=nash")
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        with torch.no_grad():
            next(trainer.loop.members[0].policies["player"].critic.parameters()).fill_(torch.nan)
        for _ in trainer:
            pass
    rows = trainer.run.population.lineage()[:3]
    assert [list(row.returns) for row in rows] == [[], ["member_2"], ["member_1"]]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("evolution.fitness=win_rate",), "needs opponents that stay the same"),
        (("evolution.references=[random]",), "needs evolution.fitness=win_rate"),
        (("evolution.references=[random]", "evolution.fitness=nash"), "needs evolution.fitness=win_rate; got nash"),
        (("env=mpe/simple_spread", "evolution.fitness=nash"), r"looks cooperative\. Use evolution\.fitness=return$"),
    ],
)
def test_contests_need_opponents(tmp_path: Path, overrides: tuple[str, ...], message: str) -> None:
    games = COMPETITIVE[2:] if overrides[0].startswith("env=") else COMPETITIVE
    with pytest.raises(ConfigError, match=message):
        mnb.train(Experiment.compose(*games, *overrides), tmp_path / "run", progress=False)


def test_a_member_that_diverges_is_replaced(tmp_path: Path) -> None:
    experiment = Experiment.compose(*SMALL, "frames=700", "checkpoint_every=1", "keep_checkpoints=0")
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        next(trainer)
        member = trainer.loop.members[1]
        with torch.no_grad():
            next(member.policies["agent"].critic.parameters()).fill_(torch.nan)
        frames = trainer.frames
        next(trainer)
        assert member.diverged and trainer.frames == frames + 16
        for _ in range(4):
            next(trainer)  # its second turn takes no frames
        assert trainer.frames == 16 * 5 + 25 * 4
    mnb.resume(tmp_path / "run", progress=False)
    rows = Run.open(tmp_path / "run").population.lineage()
    assert [row.fitness is None for row in rows[:4]] == [False, True, False, False]
    assert "not finite" in rows[1].note and rows[1].checkpoint is None
    assert rows[4].parent != 1 and rows[4].fitness is not None


def test_if_the_fittest_member_diverges_the_run_acts_by_the_next_fittest(tmp_path: Path) -> None:
    words = ("evolution=pbt", "evolution.population=4", "evolution.share=0.25", "frames=1000")
    experiment = Experiment.compose(*SMALL, *words)
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        loop = trainer.loop
        while not loop.may_end:
            next(trainer)
        for member, value in zip(loop.members, (-3.0, -2.0, -1.0, -4.0)):
            member.scores = (value,)
        loop._best = 2
        loop._next_generation()
        assert [member.scores[-1] for member in loop.members] == [-3, -2, -1, -1]  # the last one copied the fittest
        with torch.no_grad():
            next(loop.members[2].policies["agent"].critic.parameters()).fill_(torch.nan)
        while not loop.members[2].diverged:
            next(trainer)
        assert loop.learners is loop.members[3].loop.learners


@pytest.mark.parametrize(
    "learning",
    [
        pytest.param(("algorithm.minibatch_frames=8",), id="ippo"),
        pytest.param((*OFF_POLICY, "env.continuous_actions=true"), id="maddpg"),
    ],
)
def test_members_of_equal_shapes_advance_together_as_they_would_one_after_the_other(
    tmp_path: Path, learning: tuple[str, ...]
) -> None:
    probability = [f"evolution.probability.{kind}={share}" for kind, share in (("none", 0), ("width", 1))]
    words = (*_small(*learning), *probability, "evolution.new_units=[2,4]", "frames=500")
    rows = []
    for together in ("false", "true"):
        experiment = Experiment.compose(*words, f"evolution.together={together}")
        with Trainer(experiment, Run.create(tmp_path / together, experiment)) as trainer:
            for _ in trainer:
                pass
        rows.append(trainer.run.population.lineage())
        assert trainer.run.metrics()["frames"].tolist()[-1] == trainer.frames >= 500
        assert [row.frames for row in rows[-1]][:3] == [32, 32, 32]
    for alone, joined in zip(*rows):
        assert (joined.operator, joined.changes, joined.seed) == (alone.operator, alone.changes, alone.seed)
        assert joined.score == pytest.approx(alone.score, abs=1e-2)


@pytest.mark.parametrize("together", ["false", "true"])
def test_members_share_a_replay_buffer(tmp_path: Path, together: str) -> None:
    words = (*_small(*OFF_POLICY), "evolution.shared_replay=true", f"evolution.together={together}", "frames=300")
    experiment = Experiment.compose(*words)
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        for n_rollouts in range(1, 10):  # after six, in the second generation, of children
            report = next(trainer)
            (learning,) = report.learning.values()
            (buffer,) = {id(member.loop.learners["agent"].replay): member for member in trainer.loop.members}.values()
            stored = 16 * (n_rollouts if together == "false" else -(-n_rollouts // 3) * 3)
            assert len(buffer.loop.learners["agent"].replay) == stored and learning["replay_frames"] <= stored
    saved = dict(values(trainer.run.checkpoint().load()))
    assert [name for name in saved if name.endswith("/rows/agent/action")] == [
        "/population/replay/agent/rows/agent/action"
    ]


def test_only_off_policy_members_share_a_replay_buffer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"group 'agent' has no replay buffer of single steps; .* such as maddpg"):
        mnb.train(Experiment.compose(*SMALL, "evolution.shared_replay=true", "frames=300"), tmp_path / "run")
    with pytest.raises(ConfigError, match="maddpg, with n_steps=1 and feed-forward networks"):
        words = (*_small(*OFF_POLICY), "evolution.shared_replay=true", "algorithm.n_steps=3", "frames=300")
        mnb.train(Experiment.compose(*words), tmp_path / "run")


def test_a_member_that_diverges_leaves_those_that_advance_together(tmp_path: Path) -> None:
    experiment = Experiment.compose(*SMALL, "evolution.together=true", "frames=700")
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        with torch.no_grad():
            next(trainer.loop.members[1].policies["agent"].critic.parameters()).fill_(torch.nan)
        for _ in trainer:
            pass
    rows = trainer.run.population.lineage()
    assert [row.fitness is None for row in rows[:4]] == [False, True, False, False]
    assert "not finite" in rows[1].note and rows[4].parent != 1 and rows[4].fitness is not None
    with pytest.raises(
        CheckpointError, match=r"member 0-1 has no weights, because it diverged: training diverged: .*nan"
    ):
        mnb.evaluate(trainer.run.population["0-1"], episodes=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("algorithm=masac",), "do not support algorithm=masac; they support ippo, mappo, iddpg, maddpg and matd3"),
        (("algorithm=ippo", "model=gru", "rollout_steps=16"), "do not support a network of kind gru, not mlp"),
    ],
)
def test_members_that_cannot_advance_together_say_so(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    others = ("env=mpe/simple_spread", "evolution=pbt", "evolution.together=true", "frames=200_000")
    with pytest.raises(ConfigError, match=message):
        mnb.train(Experiment.compose(*others, *words, "tuned=false"), tmp_path / "run")


@pytest.mark.parametrize(
    "overrides",
    [
        (
            "evolution=pbt",
            "evolution.population=4",
            "evolution.share=0.5",
            "evolution.weights_only=true",
            "frames=2000",
        ),
        ("evolution=mf_pbt", "evolution.population=8", "evolution.periods=[1,2]", "frames=4000"),
    ],
)
def test_options_of_another_member_leave_the_parents_networks(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    """Weights come from one member and hyperparameters from another, whose networks can have other sizes."""
    experiment = Experiment.compose(
        *_small(*overrides, "model.hidden=[64,64]", "evolution.generation_frames=16", "evolution.founders=equal"),
        *("evolution.probability.hyperparameters=1", "evolution.probability.width=1", "seed=1"),
    )
    lineage = mnb.train(experiment, tmp_path / "run", progress=False).population.lineage()
    rows = {(row.generation, row.member): row for row in lineage}
    assert any(path.startswith("models.") for row in lineage for path in row.changes)
    for row in lineage:
        if row.parent is not None and row.operator != "width":
            parent = rows[row.generation - 1, row.parent]
            sizes, sizes_before = ({k: v for k, v in r.options.items() if k.endswith("hidden")} for r in (row, parent))
            assert sizes == sizes_before and not any(path.endswith("hidden") for path in row.changes)
