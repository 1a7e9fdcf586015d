from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from marlnb.algorithms.gradients import compiled
from marlnb.algorithms.gradients.adam import PartAdam
from marlnb.algorithms.gradients.traced import NotCompiledError, TracedStep, tensors_of_factors, trace
from marlnb.algorithms.off_policy import OffPolicyLearner
from marlnb.algorithms.on_policy import Minibatch, OnPolicyLearner
from marlnb.experiment import Experiment
from marlnb.models.policies.random_numbers import RandomInputs
from marlnb.training import compilation
from marlnb.training.compilation import COMPILING_FLOP, STEP_FLOP, compiling_updates
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer
from tests.sampling import exhaustive

TRAINING = (
    "env=mpe/simple_spread",
    "algorithm=ippo",
    "algorithm.epochs=2",
    "algorithm.n_minibatches=2",
    "model=mlp",
    "model.hidden=[8]",
    "n_envs=4",
    "rollout_steps=8",
    "frames=320",
    "checkpoint_every=2",
    "tuned=false",
)
LR, MAX_NORM = 1e-3, 0.5
UPDATE_FLOP = 6 * (4 * 8 * 3) * (18 * 8 + 8 + 8 * 5 + 5 + 18 * 8 + 8 + 8 + 1) * 2  # samples, weights, epochs


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return compiled.cache_folder()


def train(path: Path, iterations: int, *overrides: str, resume: bool = False) -> list[dict[str, float]]:
    run = Run.open(path) if resume else Run.create(path, Experiment.compose(*TRAINING, *overrides))
    with Trainer.resume(run) as trainer:
        return [next(trainer).learning["agent"] for _ in range(iterations)]


@pytest.mark.parametrize("continuous", [False, True])
def test_the_traced_graph_computes_the_gradient_and_the_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, continuous: bool
) -> None:
    overrides = (*TRAINING, f"env.continuous_actions={continuous}", "algorithm.entropy_coef=0.1")
    experiment = Experiment.compose(*overrides, "algorithm.value_clip=0.2")
    samples: dict[str, Tensor] = {}
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        learner = trainer.loop.learners["agent"]
        assert isinstance(learner, OnPolicyLearner)
        loss = learner.loss

        def noted(minibatch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
            samples.update(minibatch)
            return loss(minibatch)

        monkeypatch.setattr(learner, "loss", noted)
        next(trainer)
        samples["weight"] = (torch.rand_like(samples["log_prob"]) < 0.5).float()
        optimizer, zeros = learner.optimizers["optimizer"], {key: torch.zeros_like(x) for key, x in samples.items()}
        traced = trace(lambda minibatch, _: loss(minibatch), learner.policy, optimizer, MAX_NORM, zeros)
        assert not traced.constants and not traced.draws
        check_step(traced, optimizer, samples, [], loss(samples))


OFF_POLICY = (
    "env=mpe/simple_tag",
    "model=mlp",
    "model.hidden=[8]",
    "n_envs=4",
    "rollout_steps=30",
    "frames=480",
    "algorithm.updates=2",
    "algorithm.batch_size=16",
    "algorithm.learning_starts=0",
    "algorithm.buffer_frames=400",
    "tuned=false",
)


@pytest.mark.parametrize(
    ("algorithm", "overrides"),
    [
        ("iql", ()),
        ("vdn", ("algorithm.n_steps=3",)),
        ("qmix", ()),
        ("maddpg", ()),
        ("maddpg", ("algorithm.policy_actions=all", "algorithm.n_steps=3")),
        ("matd3", ("env.continuous_actions=true",)),
        ("iddpg", ("env.continuous_actions=true",)),
        ("masac", ()),
        ("masac", ("algorithm.policy_actions=all",)),
        ("masac", ("env.continuous_actions=true",)),
        ("masac", ("env.continuous_actions=true", "algorithm.policy_actions=all")),
        ("isac", ()),
    ],
)
def test_off_policy_losses_are_traced_with_targets_and_random_numbers(
    tmp_path: Path, algorithm: str, overrides: tuple[str, ...]
) -> None:
    experiment = Experiment.compose(*OFF_POLICY, f"algorithm={algorithm}", *overrides)
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        next(trainer)
        learner = trainer.loop.learners["adversary"]
        assert isinstance(learner, OffPolicyLearner) and learner.losses()
        first, later = (learner.replay.sample(16) for _ in range(2))
        for name, loss in learner.losses().items():
            optimizer, modules = learner.optimizers[name], torch.nn.ModuleList(learner.modules_read())
            traced = trace(partial(learner._loss_with, name), modules, optimizer, MAX_NORM, first)
            next(trainer)  # weights, targets and buffers change in place
            numbers = [draw(torch.Generator().manual_seed(7)) for draw in traced.draws]
            check_step(traced, optimizer, later, numbers, learner._loss_with(name, later, RandomInputs(iter(numbers))))
            if isinstance(learner.generator, torch.Generator):  # an ordinary call draws the same numbers from it
                state = learner.generator.get_state()
                expected = loss(later)[0]
                learner.generator.set_state(state)
                drawn = [draw(learner.generator) for draw in traced.draws]
                torch.testing.assert_close(learner._loss_with(name, later, RandomInputs(iter(drawn)))[0], expected)


def test_a_loss_with_random_numbers_of_another_generator_is_not_traced(tmp_path: Path) -> None:
    words = [word.replace("algorithm.", "algorithms.adversary.") for word in OFF_POLICY]
    experiment = Experiment.compose(*words, "algorithms.adversary=maddpg", "algorithms.agent=random")
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        next(trainer)
        learner = trainer.loop.learners["adversary"]
        assert isinstance(learner, OffPolicyLearner)
        modules, optimizer = torch.nn.ModuleList(learner.modules_read()), learner.optimizers["critics"]
        sample, state = learner.replay.sample(16), torch.get_rng_state()
        with pytest.raises(NotCompiledError, match="another generator"):  # the next actions of the random group
            trace(partial(learner._loss_with, "critics"), modules, optimizer, MAX_NORM, sample)
        assert torch.equal(torch.get_rng_state(), state)  # the training is the one that it is without compiling


def check_step(
    traced: TracedStep,
    optimizer: PartAdam,
    minibatch: Mapping[Any, Tensor],
    numbers: list[Tensor],
    expected: tuple[Tensor, dict[str, Tensor]],
) -> None:
    """The graph's metrics are the loss's, and its step is torch's own."""
    loss, metrics = expected
    ours, theirs = (copy.deepcopy(optimizer) for _ in range(2))
    gradients = torch.autograd.grad(loss, optimizer.all_parameters)
    norms = theirs.apply(gradients, dict.fromkeys(theirs.parameters, LR), MAX_NORM)
    factors = tensors_of_factors(ours.count_step(dict.fromkeys(ours.parameters, LR)))
    weights = [weight.detach() for weight in ours.all_parameters]
    result = traced.graph(*weights, *ours.all_moments, *factors, *traced.constants, *minibatch.values(), *numbers)
    assert tuple(metrics) == traced.metrics
    torch.testing.assert_close(result, torch.cat((torch.stack(tuple(metrics.values())), norms)))
    for changed, wanted in zip((*weights, *ours.all_moments), (*theirs.all_parameters, *theirs.all_moments)):
        torch.testing.assert_close(changed, wanted.detach(), atol=1e-6, rtol=1e-3)


def test_without_a_compiler_training_continues_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    reports = train(tmp_path / "run", 3, "compile=first")
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("marlnb: ")]
    assert len(lines) == 1 and "is not compiled" in lines[0] and "no-such-compiler" in lines[0]
    expected = train(tmp_path / "plain", 3)
    for ours, wanted in zip(reports, expected):
        assert ours == pytest.approx(wanted, rel=1e-3, abs=1e-5)
    monkeypatch.undo()  # a resumed run stays without
    monkeypatch.setattr(compiled, "trace", lambda *_: pytest.fail("it was traced again"))
    assert len(train(tmp_path / "run", 1, resume=True)) == 1


def test_minibatches_of_two_sizes_are_not_compiled_and_a_message_says_so_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reports = train(tmp_path / "run", 2, "compile=first", "algorithm.n_minibatches=3")
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("marlnb: ")]
    assert len(lines) == 1 and "not compiled" in lines[0] and "minibatches have 10 and 11 of 32 samples" in lines[0]
    assert reports == train(tmp_path / "plain", 2, "algorithm.n_minibatches=3")


def test_a_loss_that_changes_from_update_to_update_is_not_compiled_any_more(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled step has the coefficient of update 0, which changes after update 4; it takes 20 s of a core."""
    monkeypatch.setenv("AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL", "O0")
    layer, coefficient, minibatch = torch.nn.Linear(2, 1), 1.0, {"x": torch.randn(4, 2)}

    def loss(minibatch: Minibatch, _: Any) -> tuple[Tensor, dict[str, Tensor]]:
        value = coefficient * layer(minibatch["x"]).square().mean()
        return value, {"loss": value.detach()}

    def compiler(**options: Any) -> compiled.StepCompiler:
        optimizer = PartAdam({"layer": layer}, 1e-5)
        return compiled.StepCompiler(loss, lambda: layer, optimizer, 0.0, "'a'", after=0, **options)

    changing, trusted = compiler(may_change=True), compiler()
    assert all(each.step(update, minibatch) for update in range(5) for each in (changing, trusted))
    capfd.readouterr()
    coefficient = 0.5
    uses = [changing.step(update, minibatch) is not None for update in range(5, 10)]
    assert uses == [True, True, True, False, False] and changing.compiled is False  # it looked at 1, 2, 4 and 8
    assert capfd.readouterr().err.count("'a' is not compiled") == 1
    assert trusted.step(9, minibatch) is not None
    coefficient, later = 1.0, compiler(may_change=True)
    later.start(3, minibatch)
    coefficient = 1.0001  # too small a change for the comparison of the steps
    assert later.step(7, minibatch) is None  # before its first use


@pytest.mark.parametrize("module", ["marlnb.algorithms.ppo", "torch.nn", "mine", "marlnb_of_mine"])
def test_what_is_built_in(module: str) -> None:
    kind = type("Kind", (), {"__module__": module})
    assert compiled.are_built_in(torch.nn.Linear(1, 1), kind()) == (module in ("marlnb.algorithms.ppo", "torch.nn"))


def test_compiled_updates_learn_the_same_and_resume_bit_for_bit(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler itself, on a network of 8 units: 30 s of a core."""
    monkeypatch.setenv("AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL", "O0")  # of the calls of the kernels alone: less time
    reports = train(tmp_path / "whole", 4, "compile=first")
    assert len(list(cache.glob("*.pt2"))) == 1
    for ours, wanted in zip(reports, train(tmp_path / "plain", 4)):
        assert ours == pytest.approx(wanted, rel=1e-2, abs=1e-4)
    first = train(tmp_path / "halves", 2, "compile=first")
    assert [*first, *train(tmp_path / "halves", 2, resume=True)] == reports
    # as long as this training run is "long", it uses the same code from its third update on, without being asked
    monkeypatch.setattr(compilation, "COMPILING_FLOP", 2 * UPDATE_FLOP)
    run = Run.create(tmp_path / "auto", Experiment.compose(*TRAINING))
    with Trainer.resume(run) as trainer:
        compiled_so_far = []
        for _ in range(4):
            next(trainer)
            compiled_so_far.append(trainer.loop.learners["agent"].state_dict()["compiled"])
    assert compiled_so_far == [None, None, True, True]
    assert len(list(cache.glob("*.pt2"))) == 1


@exhaustive
def test_compiled_updates_in_bfloat16_differ_by_rounding_and_a_wrong_step_is_refused(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The compiler itself: half a minute of a core."""
    monkeypatch.setenv("AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL", "O0")
    reports = train(tmp_path / "run", 3, "compile=first", "model.precision=bfloat16")
    assert len(list(cache.glob("*.pt2"))) == 1 and "is not compiled" not in capfd.readouterr().err
    plain = train(tmp_path / "plain", 3, "model.precision=bfloat16")
    assert reports[-1] != plain[-1]
    for ours, wanted in zip(reports, plain):
        assert ours == pytest.approx(wanted, rel=5e-2, abs=1e-2)
    execute = compiled.CompiledStep.execute

    def wrong(step: compiled.CompiledStep, weights: list[Tensor], moments: list[Tensor], *rest: Any) -> Tensor:
        before = moments[0].clone()
        result = execute(step, weights, moments, *rest)
        moments[0].add_(moments[0] - before, alpha=0.2)  # the gradient times 1.2
        return result

    monkeypatch.setattr(compiled.CompiledStep, "execute", wrong)
    assert train(tmp_path / "wrong", 3, "compile=first", "model.precision=bfloat16") == plain
    assert "differs from torch's" in capfd.readouterr().err


def test_compiled_off_policy_updates_learn_the_same_and_resume_bit_for_bit(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The compiler itself, twice: a minute of a core."""
    monkeypatch.setenv("AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL", "O0")
    options = (*OFF_POLICY, "env=mpe/simple_spread", "algorithm=maddpg", "checkpoint_every=2")

    def train(path: Path, iterations: int, *words: str, resume: bool = False) -> list[dict[str, float]]:
        run = Run.open(path) if resume else Run.create(path, Experiment.compose(*options, *words))
        with Trainer.resume(run) as trainer:
            return [next(trainer).learning["agent"] for _ in range(iterations)]

    reports = train(tmp_path / "whole", 4, "compile=first")
    assert len(list(cache.glob("*.pt2"))) == 2 and "is not compiled" not in capfd.readouterr().err
    for ours, wanted in zip(reports, train(tmp_path / "plain", 4)):
        assert ours == pytest.approx(wanted, rel=1e-2, abs=1e-4)
    first = train(tmp_path / "halves", 2, "compile=first")
    assert [*first, *train(tmp_path / "halves", 2, resume=True)] == reports


@pytest.mark.parametrize(
    ("overrides", "updates"),
    [
        (("frames=1_000_000_000",), (COMPILING_FLOP // UPDATE_FLOP // 4, COMPILING_FLOP // UPDATE_FLOP + 1)),
        (("frames=100_000_000",), None),  # 1.3e12 operations
        (("frames=1_000_000_000", "compile=never"), None),
        (("frames=1_000_000_000", "schedule=['500000 algorithm.lr=1e-4']"), None),
    ],
)
def test_only_long_trainings_compile_by_themselves(
    tmp_path: Path, overrides: tuple[str, ...], updates: tuple[float, float] | None
) -> None:
    run = Run.create(tmp_path / "run", Experiment.compose(*TRAINING, *overrides))
    with Trainer.resume(run) as trainer:
        learner = trainer.loop.learners["agent"]
        assert compiling_updates(trainer.experiment, learner) == updates


@pytest.mark.parametrize(("frames", "is_long"), [(1_700_000, False), (1_800_000, True)])
def test_an_off_policy_training_is_long_by_its_gradient_steps(tmp_path: Path, frames: int, is_long: bool) -> None:
    """14,167 and 15,000 updates of two steps of two optimizers, 3 ms each at least: 170 and 180 s."""
    words = (*OFF_POLICY, "env=mpe/simple_spread", "algorithm=maddpg", f"frames={frames}")
    n_weights = (18 * 8 + 8 + 8 * 5 + 5) + (3 * (18 + 5) * 8 + 8 + 8 + 1)
    after = int(COMPILING_FLOP // (2 * (6 * 16 * 3 * n_weights + 2 * STEP_FLOP))) + 1
    with Trainer.resume(Run.create(tmp_path / "run", Experiment.compose(*words))) as trainer:
        updates = compiling_updates(trainer.experiment, trainer.loop.learners["agent"])
    assert updates == ((after // 4, after) if is_long else None)
