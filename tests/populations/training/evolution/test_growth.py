"""Networks that grow while they learn: outputs, gradients of the old weights and Adam's moments stay."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import marlnb as mnb
from marlnb.experiment import Experiment
from marlnb.populations.counter_draws import generator
from marlnb.populations.evolution.architecture import NetworkTarget, deepen, widen
from marlnb.populations.evolution.mutation import mutated
from marlnb.populations.training.evolution.growth import change_of_outputs, grown_state
from marlnb.populations.training.evolution.perturbation import moments_of, perturb
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

BASE = ("env=mpe/simple_spread", "n_envs=2", "rollout_steps=16", "frames=10_000", "evolution=tournament")
CASES = {
    "ippo": ("algorithm=ippo", "algorithm.epochs=2"),
    "mappo-gru": ("algorithm=mappo", "model=gru", "model.hidden=[16]", "model.recurrent_size=8"),
    "unshared-relu": ("algorithm=mappo", "model.share_parameters=false", "model.activation=relu"),
    "maddpg": ("algorithm=maddpg", "algorithm.learning_starts=0", "algorithm.updates=2", "env.continuous_actions=true"),
    "masac": ("algorithm=masac", "algorithm.learning_starts=0", "algorithm.updates=2"),
    "qmix-lstm": ("algorithm=qmix", "model=lstm", "algorithm.learning_starts=0", "algorithm.updates=2"),
}


def _trainer(path: Path, experiment: Experiment, n: int = 3) -> Trainer:
    trainer = Trainer(experiment, Run.create(path, experiment))
    for _ in range(n):
        next(trainer)
    return trainer


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("part", ["models", "critics"])
def test_new_units_change_no_output_and_no_moment(tmp_path: Path, name: str, part: str) -> None:
    overrides = () if "hidden" in str(CASES[name]) else ("model.hidden=[16,16]",)
    plain = Experiment.compose(*BASE, *CASES[name], *overrides)
    experiment = mnb.Experiment.from_json({**plain.to_json(), "evolution": None})
    if part == "critics" and experiment.algorithm.name == "qmix":
        pytest.skip("it has no critic")
    wider, changes = widen(generator(0, "", "", 0), plain.evolution, experiment, NetworkTarget(part, "agent"))
    ((path, (old, new)),) = changes.items()
    assert path == f"{part}.agent.hidden" and sum(new) - sum(old) in (16, 32, 64)
    with _trainer(tmp_path / "old", experiment) as trainer, _trainer(tmp_path / "new", wider, 0) as other:
        parent, child = trainer.loop.learners["agent"], other.loop.learners["agent"]
        state = parent.state_dict()
        child.load_state_dict(grown_state(parent, child, state))
        assert change_of_outputs(parent.policy, child.policy) < 1e-6
        before = dict(parent.policy.named_parameters())
        for optimizer_name, optimizer in child.optimizers.items():
            assert optimizer.steps == parent.optimizers[optimizer_name].steps > 0
            for parameter_name, weight in child.policy.named_parameters():
                moments = moments_of(optimizer, weight)
                if moments is None:
                    continue
                old_weight = before[parameter_name]
                block = tuple(slice(size) for size in old_weight.shape)
                for moment, old_moment in zip(moments, moments_of(parent.optimizers[optimizer_name], old_weight)):
                    assert torch.equal(moment[block], old_moment) and float(old_moment.abs().sum()) > 0
                    assert float(moment.abs().sum()) == pytest.approx(float(old_moment.abs().sum()))
        next(other)  # it learns


def test_a_step_without_the_new_weights_is_the_old_step(tmp_path: Path) -> None:
    """The gradients of the old weights are the same before and after; then so is Adam's step."""
    plain = Experiment.compose(*BASE, *CASES["ippo"], "model.hidden=[16,16]", "algorithm.max_grad_norm=0")
    experiment = mnb.Experiment.from_json({**plain.to_json(), "evolution": None})
    wider, _ = widen(generator(0, "", "", 0), plain.evolution, experiment, NetworkTarget("models", "agent"))
    with _trainer(tmp_path / "old", experiment) as trainer, _trainer(tmp_path / "new", wider, 0) as other:
        parent, child = trainer.loop.learners["agent"], other.loop.learners["agent"]
        child.load_state_dict(grown_state(parent, child, parent.state_dict()))
        rollout = trainer.loop._collector.collect()
        steps = []
        for learner in (parent, child):
            learner.policy.train()
            output = learner.policy.actor(rollout["agent", "observation"]).square().mean()
            value = sum(weight.sum() * 0 for weight in learner.policy.critic.parameters())
            before = {name: weight.clone() for name, weight in learner.policy.named_parameters()}
            learner._optimizer.step(output + value, {"actor": 1e-3, "critic": 0.0}, 0.0)
            steps.append({name: weight - before[name] for name, weight in learner.policy.named_parameters()})
        for name, step in steps[0].items():
            block = tuple(slice(size) for size in step.shape)
            assert torch.allclose(steps[1][name][block], step, atol=1e-7), name
        grown = [name for name, step in steps[1].items() if step.shape != steps[0][name].shape and "weight" in name]
        outgoing = steps[1][grown[-1]][:, steps[0][grown[-1]].shape[1] :]
        assert float(outgoing.detach().abs().max()) > 1e-4  # the gradient reaches new units at once


@pytest.mark.parametrize("name", ["unshared-relu", "mappo-gru"])
def test_a_new_layer_is_the_identity(tmp_path: Path, name: str) -> None:
    plain = Experiment.compose(*BASE, *CASES[name], *(("model.activation=relu",) if "gru" in name else ()))
    experiment = mnb.Experiment.from_json({**plain.to_json(), "evolution": None})
    deeper, changes = deepen(generator(0, "", "", 0), plain.evolution, experiment, NetworkTarget("models", "agent"))
    ((_, (old, new)),) = changes.items()
    assert new == [*old, old[-1]]
    with _trainer(tmp_path / "old", experiment) as trainer, _trainer(tmp_path / "new", deeper, 0) as other:
        parent, child = trainer.loop.learners["agent"], other.loop.learners["agent"]
        child.load_state_dict(grown_state(parent, child, parent.state_dict()))
        assert change_of_outputs(parent.policy, child.policy) < 1e-6
        next(other)


@pytest.mark.parametrize(
    ("kind", "overrides", "message"),
    [
        ("depth", (), "the identity with activation=relu .* it has activation=tanh"),
        ("width", ("model.layer_norm=true",), "new units change the normalisation"),
        ("width", ("evolution.max_units=64",), "max_units=64"),
        ("width", ("model=sequence",), "model 'sequence' has no hidden layers"),
    ],
)
def test_what_cannot_grow_is_refused(kind: str, overrides: tuple[str, ...], message: str) -> None:
    experiment = Experiment.compose(*BASE, "algorithm=ippo", *overrides)
    networks = [NetworkTarget("models", "agent")]
    with pytest.raises(mnb.MarlnbError, match=message):
        mutated(kind, generator(0, "", "", 0), experiment.evolution, experiment, (), networks)


@pytest.mark.parametrize(
    ("overrides", "readers"),
    [
        (("algorithm=mappo", "critic=attention"), ("critic.network.head",)),
        (("algorithm=mappo", "critic=deep_sets"), ("critic.network.head",)),
        (("model=gnn", "model.messages=graph"), ("actor.network.rounds.0.own", "actor.network.rounds.0.heard")),
        (("model=gnn",), tuple(f"actor.network.rounds.0.{name}" for name in ("own", "heard", "hearing"))),
        (("model=lstm",), ("actor.network.lstm.input",)),
    ],
    ids=["attention", "deep_sets", "graph", "gatv2", "lstm"],
)
def test_all_that_read_a_dormant_unit_get_weights_of_0_and_nothing_else(
    tmp_path: Path, overrides: tuple[str, ...], readers: tuple[str, ...]
) -> None:
    words = ("model.hidden=[64]",) if overrides[0].startswith("model=") else ("critic.hidden=[64]",)
    experiment = Experiment.compose(*BASE[:4], *CASES["ippo"], *overrides, *words)
    with _trainer(tmp_path / "run", experiment, 1) as trainer:
        learner = trainer.loop.learners["agent"]
        layer = f"{readers[0].partition('.')[0]}.network.hidden.0.linear"
        weights = dict(learner.policy.named_parameters())
        moments_of(learner._optimizer, weights[f"{layer}.weight"])[0][3] = 0.0  # unit 3 has no gradient
        before = {name: weight.detach().clone() for name, weight in weights.items()}
        perturb(learner, generator(0, "", "", 0), sigma=0.0, dormant_threshold=1e-9)
        changed = {name for name, weight in weights.items() if not torch.equal(weight, before[name])}
        outgoing = {f"{name}.weight" for name in readers}
        assert changed - {f"{layer}.bias"} == {f"{layer}.weight", *outgoing}
        for name in outgoing:
            same = (weights[name] == before[name]).all(0)
            assert not weights[name][:, 3].any() and same.tolist() == [k != 3 for k in range(64)]
            assert not any(moment[:, 3].any() for moment in moments_of(learner._optimizer, weights[name]))


def test_dormant_units_start_again_and_weights_get_noise(tmp_path: Path) -> None:
    experiment = Experiment.compose(*BASE[:4], *CASES["ippo"], "model.hidden=[16,16]")
    with _trainer(tmp_path / "run", experiment) as trainer:
        learner = trainer.loop.learners["agent"]
        layer, reader = (each.linear for each in learner.policy.actor.network.hidden)
        for moment in moments_of(learner._optimizer, layer.weight):
            moment[3] = 0.0  # unit 3 has no gradient
        before = layer.weight.detach().clone()
        done = perturb(learner, generator(0, "", "", 0), sigma=0.0, dormant_threshold=0.01)
        assert done.startswith("1 dormant units reset")
        changed = (layer.weight != before).any(1)
        assert changed.tolist() == [k == 3 for k in range(16)]
        assert not reader.weight[:, 3].any() and not moments_of(learner._optimizer, reader.weight)[0][:, 3].any()
        next(trainer)  # every unit has a gradient again
        before = {name: weight.detach().clone() for name, weight in learner.policy.named_parameters()}
        perturb(learner, generator(0, "", "", 1), sigma=0.1, dormant_threshold=0.0)
        noise = [
            ((weight - before[name]) / before[name]).flatten()
            for name, weight in learner.policy.named_parameters()
            if name.startswith("actor.") and weight.ndim == 2
        ]
        relative = torch.cat(noise).detach()
        relative = relative[relative.isfinite()]
        share = float((relative != 0).float().mean())
        assert share == pytest.approx(0.1, abs=0.03) and float(relative[relative != 0].std()) == pytest.approx(0.1, 0.2)
        critic = [name for name, w in learner.policy.named_parameters() if not torch.equal(w, before[name])]
        assert all(name.startswith("actor.") for name in critic)
