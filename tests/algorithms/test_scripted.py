"""Groups that do not learn: what they do, and that training runs, checkpoints, evaluations and recordings take them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

import marlnb
from marlnb.algorithms.configs.scripted import FrozenConfig
from marlnb.algorithms.scripted import import_function
from marlnb.config import LearnerContext
from marlnb.errors import CheckpointError, ConfigError, RunError, ShapeError
from marlnb.experiment import Experiment
from marlnb.models.policies.scripted import FunctionPolicy, NoOpPolicy
from marlnb.specs import ActionSpec, GroupSpec, ObservationSpec
from marlnb.training.learners import build_learners
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from marlnb.training.trainer import Trainer

TAG = (
    *("env=mpe/simple_tag", "algorithm=ippo", "algorithm.epochs=1", "n_envs=4", "rollout_steps=8", "frames=96"),
    *("checkpoint_every=1", "env.max_cycles=8", "model.hidden=[8]"),
)


def flee(observation: Tensor, mask: Tensor | None, group: GroupSpec, generator: torch.Generator | None) -> Tensor:
    """mpe's choice 1 is a step to the left."""
    assert mask is None and group.name == "agent"
    return torch.ones(observation.shape[:2], dtype=torch.int64)


def floats(observation: Tensor, mask: Tensor | None, group: GroupSpec, generator: torch.Generator | None) -> Tensor:
    return torch.ones(observation.shape[:2])


def too_large(observation: Tensor, mask: Tensor | None, group: GroupSpec, generator: torch.Generator | None) -> Tensor:
    return torch.full(observation.shape[:2], 5)


def group_of(action: ActionSpec) -> GroupSpec:
    return GroupSpec("a", ("a_0", "a_1"), ObservationSpec((3,)), action)


def test_no_op_is_the_first_allowed_choice_and_the_number_nearest_zero() -> None:
    observation = torch.zeros(2, 2, 3)
    mask = torch.tensor([[[True, True, False], [False, True, True]], [[False, False, True], [True, False, True]]])
    discrete = NoOpPolicy(group_of(ActionSpec("discrete", n=(3,))))
    assert discrete.act(observation, action_mask=mask).action.tolist() == [[0, 1], [2, 0]]
    assert discrete.act(observation).action.tolist() == [[0, 0], [0, 0]]
    several = NoOpPolicy(group_of(ActionSpec("multi_discrete", n=(2, 1))))
    assert several.act(observation, action_mask=mask).action.tolist() == [[[0, 0], [1, 0]], [[0, 0], [0, 0]]]
    box = NoOpPolicy(group_of(ActionSpec("continuous", low=(-1.0, 0.5, -3.0), high=(1.0, 2.0, -1.0))))
    assert box.act(observation).action.tolist() == [[[0.0, 0.5, -1.0]] * 2] * 2


def test_a_function_is_held_to_its_groups_actions() -> None:
    group, observation = group_of(ActionSpec("discrete", n=(5,))), torch.zeros(4, 2, 3)
    with pytest.raises(ShapeError, match=r"f must return actions torch.int64 \[4, 2\]; it returned torch.float32"):
        FunctionPolicy(group, floats, "f").act(observation)
    with pytest.raises(ShapeError, match=r"discrete actions of 0.0 to 4; it returned \[\[5, 5\]"):
        FunctionPolicy(group, too_large, "f").act(observation)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "must be module:function"),
        ("no_such_module:f", "cannot import 'no_such_module'"),
        ("tests.algorithms.test_scripted:fle", "no name 'fle' in tests.algorithms.test_scripted; did you mean 'flee'"),
        ("tests.algorithms.test_scripted:TAG", "not a function of observation, action_mask, group, generator"),
        ("os:getcwd", "cannot use 'os:getcwd': 'os' is a module of Python itself"),
        ("marlnb.errors:nearest", "nearest must take observation, action_mask, group, generator: too many positional"),
    ],
)
def test_a_function_that_is_not_there(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        import_function(path, "scripted for group 'a'")


def test_the_prey_runs_to_the_left(tmp_path: Path) -> None:
    function = "algorithms.agent.function=tests.algorithms.test_scripted:flee"
    experiment = Experiment.compose(*TAG, "algorithms.agent=scripted", function)
    run = train(experiment, tmp_path / "r", progress=False)
    assert run.status()["state"] == "complete"
    with marlnb.record(run, episodes=3, progress=False) as recording:
        assert (recording.steps("agent", "action").to_numpy() == 1).all()


@pytest.mark.parametrize("name", ["random", "no_op"])
def test_they_train_resume_evaluate_and_record(tmp_path: Path, name: str) -> None:
    experiment = Experiment.compose(*TAG, f"algorithms.agent={name}")
    run = train(experiment, tmp_path / "r", progress=False)
    assert resume(run, frames=128, progress=False).status()["frames"] == 128
    metrics = run.metrics()
    assert not [column for column in metrics.columns if column.startswith("learning/agent")]
    assert marlnb.evaluate(run, episodes=4).episodes == 4
    with marlnb.record(run, episodes=2, progress=False) as recording:
        taken = recording.steps("agent", "action").to_numpy()
    assert (taken == 0).all() if name == "no_op" else len(set(taken.flatten().tolist())) > 1


def test_a_frozen_group_acts_as_in_the_run_that_trained_it(tmp_path: Path) -> None:
    source = train(Experiment.compose(*TAG), tmp_path / "source", progress=False)
    frozen = ("algorithms.agent=frozen", f"algorithms.agent.run={source.path}", "algorithms.agent.checkpoint=2")
    experiment = Experiment.compose(*TAG, *frozen, "seed=7")
    with Trainer(experiment, Run.create(tmp_path / "r", experiment)) as trainer:
        before = {name: value.clone() for name, value in trainer.policies["agent"].state_dict().items()}
        list(trainer)
        after = trainer.policies["agent"].state_dict()
    trained = source.policies(2)["agent"].actor.state_dict()  # type: ignore[union-attr]
    for name, value in trained.items():
        assert torch.equal(after[f"actor.{name}"], value)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert marlnb.evaluate(trainer.run, episodes=3).checkpoint == 3
    with marlnb.record(trainer.run, episodes=2, progress=False) as recording:
        assert recording["agent/actor/hidden_1"].shape[-1] == 8


def test_a_run_with_a_frozen_group_works_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train(Experiment.compose(*TAG), "first", progress=False)
    experiment = Experiment.compose(*TAG, "algorithms.agent=frozen", "algorithms.agent.run=first")
    train(experiment, "second", progress=False)
    assert train(experiment, "second", resume=True, progress=False).status()["state"] == "complete"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    run = Run.open("../second")
    assert set(run.policies()) == {"adversary", "agent"}
    assert resume(run, frames=128, progress=False).status()["state"] == "complete"


def test_a_frozen_group_explores_on_after_a_resume_as_without_it(tmp_path: Path) -> None:
    """The state of correlated noise is in the checkpoint: at iteration 2 it is in the middle of an episode."""
    sizes = ("n_envs=2", "rollout_steps=4", "env.continuous_actions=true", "tuned=false")
    noise = ("algorithm.noise_kind=ornstein_uhlenbeck", "algorithm.learning_starts=0", "algorithm.batch_size=8")
    ddpg = ("algorithm=iddpg", *noise, "algorithm.updates=1", "algorithm.buffer_frames=64")
    mpe, more = [word for word in TAG if not word.startswith("algorithm")], ("env.max_cycles=50", *sizes)
    source = train(Experiment.compose(*mpe, *more, *ddpg, "frames=8"), tmp_path / "source", progress=False)
    frozen = ("algorithms.agent=frozen", f"algorithms.agent.run={source.path}")
    experiment = Experiment.compose(*TAG, *more, *frozen)
    with Trainer(experiment, Run.create(tmp_path / "r", experiment)) as trainer:
        next(trainer), next(trainer)
        with Trainer.resume(Run.open(shutil.copytree(tmp_path / "r", tmp_path / "again"))) as resumed:
            rollouts = []
            for each in (trainer, resumed):
                each.loop.on_rollout.append(lambda rollout: rollouts.append(rollout["agent", "action"].clone()))
                next(each)
    assert torch.equal(*rollouts)


def test_a_run_resumes_against_its_first_opponent(tmp_path: Path) -> None:
    source = train(Experiment.compose(*TAG), tmp_path / "source", progress=False)
    frozen = ("algorithms.agent=frozen", f"algorithms.agent.run={source.path}")
    run = train(Experiment.compose(*TAG, *frozen, "seed=7"), tmp_path / "r", progress=False)
    opponent = source.policies()["agent"].state_dict()
    resume(source, frames=192, progress=False)
    assert not torch.equal(
        source.policies()["agent"].state_dict()["actor.network.head.bias"], opponent["actor.network.head.bias"]
    )
    resume(run, frames=128, progress=False)
    held = run.policies()["agent"].state_dict()
    assert torch.equal(held["actor.network.head.bias"], opponent["actor.network.head.bias"])


def test_a_run_needs_no_checkpoint_of_the_other_run_once_it_has_its_own(tmp_path: Path) -> None:
    source = train(Experiment.compose(*TAG), tmp_path / "source", progress=False)
    frozen = ("algorithms.agent=frozen", f"algorithms.agent.run={source.path}", "algorithms.agent.checkpoint=3")
    experiment = Experiment.compose(*TAG, *frozen, "seed=7")
    run = train(experiment, tmp_path / "r", progress=False)
    weights = run.policies()["agent"].state_dict()
    resume(source, frames=256, progress=False)
    assert [each.iteration for each in source.checkpoints if each.iteration <= 3] == []
    assert marlnb.evaluate(run, episodes=2).episodes == 2
    shutil.rmtree(source.path / "checkpoints")
    assert resume(run, frames=128, progress=False).status()["state"] == "complete"
    assert all(torch.equal(value, weights[name]) for name, value in run.policies()["agent"].state_dict().items())
    with pytest.raises(CheckpointError, match="no checkpoint 3 in"):
        train(experiment, tmp_path / "new", progress=False)
    assert not (tmp_path / "new").exists()
    untrained = build_learners(experiment, run.spec)["agent"].policy
    with pytest.raises(CheckpointError, match="no checkpoint 3 in"):
        untrained.act(torch.zeros(1, 1, *untrained.group.observation.shape))


def test_a_run_keeps_the_networks_of_a_populations_winner(tmp_path: Path) -> None:
    """They grow in every generation, and checkpoints of the other run have only the last ones."""
    evolves = ("evolution=tournament", "evolution.population=2", "evolution.elites=0", "evolution.generation_frames=32")
    kinds = ("evolution.probability.none=0", "evolution.probability.hyperparameters=0", "evolution.probability.width=1")
    words = (*TAG, "target_group=agent", "evaluation_episodes=1", "tuned=false", "frames=200", "checkpoint_every=50")
    source = train(Experiment.compose(*words, *evolves, *kinds), tmp_path / "source", progress=False)
    frozen = ("algorithms.agent=frozen", f"algorithms.agent.run={source.path}")
    evolving = ("target_group=adversary", *evolves)
    runs = [
        train(Experiment.compose(*words, *frozen, *more), tmp_path / str(len(more)), progress=False)
        for more in ((), evolving)
    ]
    first = runs[0].policies()["agent"].state_dict()
    resume(source, frames=500, progress=False)
    assert _size(source) > _size(runs[0])
    shutil.rmtree(source.path / "checkpoints")
    for run in runs:
        resume(run, frames=300, progress=False)
        assert all(torch.equal(value, first[name]) for name, value in run.policies()["agent"].state_dict().items())


def _size(run: Run) -> int:
    return sum(value.numel() for value in run.policies()["agent"].parameters())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ConfigError, "it needs a run, such as algorithms.agent.run=runs/other"),
        ({"run": "nowhere"}, RunError, "nowhere is not a run folder"),
        ({"run": "SOURCE", "group": "adversary"}, ConfigError, "has agents 1; the run was trained .* with 3"),
        ({"run": "SOURCE", "group": "hunter"}, ConfigError, "no group 'hunter' of mpe/simple_tag"),
        ({"run": "SOURCE", "checkpoint": "77"}, RunError, "no checkpoint 77 in"),
        ({"run": "RANDOM"}, ConfigError, "acts by 'random', which has no network"),
    ],
)
def test_what_cannot_be_frozen(tmp_path: Path, options: dict[str, str], error: type[Exception], message: str) -> None:
    if "run" in options and options["run"] != "nowhere":
        prey = ("algorithms.agent=random",) if options["run"] == "RANDOM" else ()
        source = train(Experiment.compose(*TAG, *prey), tmp_path / "source", progress=False)
        options = {**options, "run": str(source.path)}
    given = [f"algorithms.agent.{key}={value}" for key, value in options.items()]
    experiment = Experiment.compose(*TAG, "algorithms.agent=frozen", *given)
    with pytest.raises(error, match=message):
        Trainer(experiment, Run.create(tmp_path / "r", experiment))


def test_a_policy_that_is_frozen_from_itself_is_an_error(tmp_path: Path) -> None:
    """As in a run folder from elsewhere; it was built within itself until Python's stack was full."""
    run = train(Experiment.compose(*TAG), tmp_path / "r", progress=False)
    file = run.path / "experiment.json"
    (tmp_path / "link").symlink_to(run.path)
    frozen = {"name": "frozen", "run": str(tmp_path / "link")}
    file.write_text(json.dumps({**json.loads(file.read_text()), "algorithms": {"agent": frozen}}))
    with pytest.raises(ConfigError, match=r"group 'agent' of .*link is frozen from itself"):
        Run.open(run.path).policies()


def test_a_frozen_config_says_who_builds_it() -> None:
    experiment = Experiment.compose(*TAG)
    spec = experiment.env.build(1).spec
    config, model = FrozenConfig(run="runs/x"), experiment.model
    with pytest.raises(ConfigError, match=r"build it with marlnb.training.learners.build_learners"):
        config.build(LearnerContext(spec.groups[0], spec, model, model, 1, 1))
