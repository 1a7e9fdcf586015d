"""usage: a unit that the head reads, one that it ignores, and the properties of the random directions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.interventions.confounds import with_own_action
from marlnb.analysis.interventions.mediation import mediation
from marlnb.analysis.interventions.usage import usage
from marlnb.analysis.interventions.usage_conclusion import conclude
from marlnb.analysis.interventions.usage_result import UsageTest
from marlnb.analysis.representations.tuning import tuning
from marlnb.analysis.stats.given_patterns import explained_share, patterns, without
from marlnb.analysis.stats.random_directions import matched_directions, random_directions
from marlnb.errors import AnalysisError, ConfigError
from marlnb.groundtruth.envs.sparse_signals import SparseSignalsConfig
from marlnb.models.hooks.directions import Direction
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.recording.capture.recorder import record
from marlnb.training.policies.agents import Agents
from marlnb.training.runs.run import Run
from tests.recording.runs import LivesConfig

DATA = Path(__file__).parents[3] / "data"

SITE = "a/actor/hidden_1"
HEAD = "a/actor/head"


@pytest.fixture
def planted(tmp_path: Path) -> Agents:
    """Unit 0 and its copy, unit 1, hold tanh(2 * t/10); the head reads unit 0 alone, strongly, the others weakly."""
    spec = LivesConfig().build(1).spec
    torch.manual_seed(0)
    policies = {g.name: ActorCritic(g, spec, MLPConfig(hidden=(16,)), MLPConfig(hidden=(4,))) for g in spec.groups}
    network = policies["a"].actor.network
    hidden, head = network.hidden[0].linear, network.head  # type: ignore[union-attr, index]
    with torch.no_grad():
        hidden.weight[:2] = torch.tensor([0.0, 2.0, 0.0])  # type: ignore[index, operator]
        hidden.weight[2:] = torch.randn(14, 3) * 0.3  # type: ignore[index, operator]
        hidden.bias[:2] = 0.0  # type: ignore[index, operator]
        head.weight.mul_(5)  # type: ignore[union-attr, operator]
        head.weight[:, 0] = torch.tensor([3.0, -3.0, 3.0, -3.0])  # type: ignore[index, operator]
        head.weight[:, 1] = 0.0  # type: ignore[index, operator]
    return Agents(policies, LivesConfig(), tmp_path)


def unit(index: int) -> Direction:
    return Direction(SITE, "a_0", tuple(np.eye(16)[index]), 0.4, 0.3, f"unit {index}")


@dataclass
class PerfectDecoding:
    """A decoding that read the label perfectly."""

    direction: Direction
    p_value: float = 0.01
    low: float = 0.9
    chance: float = 0.5
    checkpoint: int | None = None

    def directions(self, agent: str | None = None) -> tuple[Direction, ...]:
        return (self.direction,)

    def of(self, agent: str | None = None) -> PerfectDecoding:
        return self


def test_a_unit_that_the_head_reads_is_used_and_its_copy_is_not(planted: Agents) -> None:
    used = usage(planted, PerfectDecoding(unit(0)), episodes=30, n_envs=30)
    assert used.conclusion == "used" and used.decodable and "a_0 uses unit 0" in repr(used) and not used.warnings
    assert used.of("erase").p_value == used.of("steer").p_value == 1 / 40
    assert used.of("erase").low > 0.1 > used.of("erase").random_mean
    decoy = usage(planted, PerfectDecoding(unit(1)), episodes=30, n_envs=30)
    assert decoy.conclusion == "decodable but not used" and decoy.of("erase").effect < 1e-6 > decoy.of("steer").effect
    assert "other directions or sites carry the same information instead was not tested" in decoy.verdict
    assert any("no edit changed" in note for note in decoy.warnings) == (decoy.of("steer").effect == 0)
    assert usage(planted, unit(1), episodes=4, n_random_directions=2).conclusion == "not shown to be used"
    few = usage(planted, unit(0), episodes=4, n_random_directions=5)
    assert len(few.warnings) == 2 and "0.17" in few.warnings[1] and few.conclusion == "not shown to be used"


def test_the_effect_is_that_of_the_edit_computed_by_hand(planted: Agents) -> None:
    """One step's total variation, erased to the mean 0.4, for every t of every episode."""
    for wrong in ("goal", ["goal"], 3):
        with pytest.raises(ConfigError, match=r"directions= to be a Direction, as .*, or a decoding; got"):
            usage(planted, wrong)  # type: ignore[arg-type]
    result = usage(planted, unit(0), episodes=6, seed=100, n_envs=4, n_random_directions=1)
    policy = planted.policies()["a"]
    expected = []
    for k in range(6):
        rows = []
        for t in range(3 + (100 + k) % 7):
            observation = torch.tensor([[100 + k, t, 0]]).float().expand(3, 3) / 10
            before = policy.logits(observation)[0][0].detach()
            after = before + (0.4 - np.tanh(0.2 * t)) * policy.actor.network.head.weight[:, 0].detach()  # type: ignore[attr-defined, union-attr]
            allowed = torch.arange(4) % 4 != t % 4
            p, q = (x[allowed].softmax(-1) for x in (before, after))
            rows.append(float((p - q).abs().sum() / 2))
        expected.append(np.mean(rows))
    assert result.of("erase").effect == pytest.approx(np.mean(expected), abs=1e-5)
    assert result.of("erase").return_change == 0


def test_random_directions_are_orthogonal_of_length_one_and_matched_in_variance() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((10, 10))
    covariance = mixing @ mixing.T
    target = rng.standard_normal((2, 10))
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    for sets in (random_directions(target, 30, rng), matched_directions(target, covariance, 30, rng)[0]):
        assert sets.shape == (30, 2, 10)
        np.testing.assert_allclose(np.linalg.norm(sets, axis=-1), 1.0)
        np.testing.assert_allclose(sets @ target.T, 0.0, atol=1e-9)
    variances = np.einsum("sdu,uv,sdv->sd", sets, covariance, sets)
    np.testing.assert_allclose(variances, np.tile([v @ covariance @ v for v in target], (30, 1)), rtol=1e-3)
    assert np.std(sets[:, 0] @ sets[0, 0]) > 0.1  # they differ from one another
    first = np.zeros((1, 10))
    first[0, 0] = 1.0
    assert matched_directions(first, np.diag([100.0, *np.ones(9)]), 3, rng)[1] == pytest.approx(0.99)


def test_matched_directions_are_orthogonal_where_units_never_vary() -> None:
    rng = np.random.default_rng(0)
    activations = np.pad(rng.normal(size=(200, 4)), ((0, 0), (0, 12)))
    target = np.pad(np.linalg.qr(rng.normal(size=(4, 2)))[0].T, ((0, 0), (0, 12)))
    sets, _ = matched_directions(target, np.cov(activations.T), 50, np.random.default_rng(1))
    np.testing.assert_allclose(sets @ target.T, 0, atol=1e-9)


def test_invalid_requests_are_rejected(planted: Agents) -> None:
    with pytest.raises(AnalysisError, match="chooses no actions"):
        usage(planted, Direction("a/critic/hidden_1", "a_0", (1.0, 0, 0, 0), 0, 1))
    several = [Direction(SITE, "a_0", tuple(np.eye(16)[k]), 0.0, 1.0, f"goal = {k}") for k in (2, 3)]
    assert usage(planted, several, episodes=2, n_random_directions=1).concept == "goal"
    with pytest.raises(AnalysisError, match="one agent at one site"):
        usage(planted, [unit(0), Direction(SITE, "a_1", tuple(np.eye(16)[0]), 0, 1)])
    with pytest.raises(
        AnalysisError, match=r"the 15 tested directions span 15 of the 16 dimensions of a/actor/hidden_1"
    ):
        usage(planted, [unit(index) for index in range(15)], episodes=2)  # all random ones would be unit 15
    centred = (np.eye(4) - 0.25) / np.sqrt(0.75)
    classes = [Direction(HEAD, "a_0", tuple(vector), 0.0, 1.0, f"goal = {k}") for k, vector in enumerate(centred)]
    with pytest.raises(AnalysisError, match=r"the 4 tested directions span 3 of the 4 .*directions\(\)\[:1\]"):
        usage(planted, classes, episodes=2)
    angles = np.linspace(0, 1, 16)
    in_a_plane = [replace(unit(0), vector=(np.cos(x), np.sin(x), *[0.0] * 14)) for x in angles]
    assert usage(planted, in_a_plane, episodes=2, n_random_directions=1).n_directions == 16


EVENTS = "agent/actor/hidden_1"


@pytest.fixture
def rumour(tmp_path: Path) -> Agents:
    """Unit 0 holds rumour_0, unit 1 signal_0, which correlates with it; the head reads unit 1 and not unit 0.

    Units 2 and 3 vary as much, with the position, and are hardly read.
    """
    spec = SparseSignalsConfig().build(1).spec
    (group,) = spec.groups
    torch.manual_seed(0)
    policy = ActorCritic(group, spec, MLPConfig(hidden=(24,)), MLPConfig(hidden=(4,)))
    network = policy.actor.network
    hidden, head = network.hidden[0].linear, network.head  # type: ignore[union-attr, index]
    names = list(group.observation.names)
    with torch.no_grad():
        hidden.weight.copy_(torch.randn_like(hidden.weight) * 0.02)  # type: ignore[operator, arg-type]
        hidden.weight[:, [names.index("rumour_0"), names.index("signal_0")]] = 0.0  # type: ignore[index, operator]
        hidden.weight[:2] = 0.0  # type: ignore[index, operator]
        hidden.weight[0, names.index("rumour_0")] = hidden.weight[1, names.index("signal_0")] = 2.0  # type: ignore[index, operator]
        hidden.weight[2, names.index("position_x")] = hidden.weight[3, names.index("position_y")] = 3.0  # type: ignore[index, operator]
        hidden.bias[:2] = 0.0  # type: ignore[index, operator]
        head.weight.copy_(torch.randn_like(head.weight) * 0.02)  # type: ignore[union-attr, operator, arg-type]
        head.weight[:, 0] = 0.0  # type: ignore[index, operator]
        head.weight[:, 1] = torch.linspace(-6, 6, head.weight.shape[0])  # type: ignore[index, operator, union-attr]
    return Agents({group.name: policy}, SparseSignalsConfig(), tmp_path)


def event(of_rumour: float, of_signal: float, concept: str) -> Direction:
    vector = np.eye(24)[0] * of_rumour + np.eye(24)[1] * of_signal
    return Direction(EVENTS, "agent_0", tuple(vector / np.linalg.norm(vector)), 0.08, 0.27, concept)


def test_what_a_correlated_quantity_explains_is_not_separable_from_it(rumour: Agents) -> None:
    """The pattern of rumour_0 has 0.66 of its length in the unit of signal_0, with which it correlates by that much."""
    result = usage(rumour, event(1.0, 0.66, "rumour_0"), episodes=40, n_envs=40)
    alone = result.of("steer")
    assert alone.p_value == 1 / 40 and alone.low > result.negligible  # without its confounds it would be used
    assert result.conclusion == "not separable" and "signal_0" in result.not_separable_from
    assert "Not separable from" in result.verdict and repr(result).startswith(result.verdict)
    (confound,) = [confound for confound in result.confounds if confound.names == ("signal_0",)]
    assert confound.explains and confound.correlation > 0.5 and confound.tests[0].effect < 0.02
    signal = usage(rumour, event(0.66, 1.0, "signal_0"), episodes=40, n_envs=40)
    assert signal.conclusion == "used" and not signal.not_separable_from
    assert "rumour_0" in signal.confounds[0].names and not signal.confounds[0].explains
    assert "does not explain it" in signal.verdict


def test_what_is_given_is_removed_and_both_effects_are_reported(rumour: Agents) -> None:
    result = usage(rumour, event(1.0, 0.66, "rumour_0"), given="signal_0", episodes=40, n_envs=40, strength=1.0)
    assert [(test.edit, test.given) for test in result.tests] == [
        *(("erase", ""), ("steer", ""), ("erase", "signal_0"), ("steer", "signal_0"))
    ]
    left = result.of("erase", given=True)
    assert left.effect < 0.02 < result.of("erase").effect
    assert left.share_left == pytest.approx(1 / np.hypot(1, 0.66), abs=0.02)
    table = result._repr_table()
    assert "signal_0" in result.not_separable_from and "signal_0" in str(table)
    shown = [text.split(", ")[1] for text in table["random, p (Holm)"]]
    assert any(f"(p = {p})" in result.verdict for p in shown[:2])  # the table and the sentence have the same p-values
    own = usage(rumour, event(0.66, 1.0, "signal_0"), given=["action", "rumour_0"], episodes=40, n_envs=40)
    assert own.of("steer", given=True).given == "own action, rumour_0"
    with pytest.raises(AnalysisError, match="signal_0"):
        usage(rumour, event(0.66, 1.0, "signal_0"), given="signal0", episodes=2)
    with pytest.raises(AnalysisError, match="erase"):
        result.of("ablate")


def test_a_direction_without_its_matched_control_is_not_separable(rumour: Agents) -> None:
    """Nothing else varies as much as the unit that holds the signal."""
    network = rumour.policies()["agent"].actor.network  # type: ignore[attr-defined, union-attr]
    with torch.no_grad():
        network.hidden[0].linear.weight[[0, 2, 3]] = 0.0  # type: ignore[union-attr, index, operator]
    result = usage(rumour, event(0.0, 1.0, "unit 1"), episodes=40, n_envs=40)
    assert result.of("erase").matched_mean is None and result.of("erase").p_value == 1 / 40
    assert result.conclusion == "not separable" and "no random direction varies as much" in result.verdict
    assert any("is no label of these episodes" in note for note in result.notes)


def test_rows_choose_the_steps_that_count(rumour: Agents) -> None:
    """Erasing a signal to its mean moves the choices most where the signal is on."""
    direction = event(0.0, 1.0, "signal_0")
    by_value = [
        usage(rumour, direction, rows=f"signal_0 == {value}", episodes=20, n_random_directions=2) for value in (1, 0)
    ]
    on, off = (result.of("erase").effect for result in by_value)
    assert "note: rows='signal_0 == 1': other rows do not count" in repr(by_value[0])
    both = usage(rumour, direction, episodes=20, n_random_directions=2).of("erase").effect
    assert on > 2 * off > 0 and off < both < on
    with pytest.raises(AnalysisError, match="selects none"):
        usage(rumour, direction, rows="t > 1000", episodes=2, n_random_directions=1)


def test_patterns_are_those_of_a_regression_with_the_concept_held_fixed() -> None:
    rng = np.random.default_rng(0)
    k = rng.standard_normal((4000, 1))
    z = 0.8 * k + 0.6 * rng.standard_normal((4000, 1))
    h = k @ [[3.0, 0.0, 1.0]] + z @ [[0.0, 2.0, 0.0]]
    (basis,) = patterns(h, z, k)
    np.testing.assert_allclose(np.abs(basis), [0, 1, 0], atol=1e-9)
    (alone,) = patterns(h, z)
    covariance = np.array([3 * 0.8, 2 * 1.0, 0.8])  # Cov(h, z) by hand
    np.testing.assert_allclose(np.abs(alone), covariance / np.linalg.norm(covariance), atol=0.03)
    rest, left = without(np.array([[0.6, 0.8, 0.0]]), basis[None])
    np.testing.assert_allclose(rest, [[1, 0, 0]], atol=1e-9)
    assert left == pytest.approx([0.6]) and len(patterns(h, k, k)) == 0
    assert explained_share(z, k) == pytest.approx(0.64, abs=0.03)
    assert explained_share(h, z, k) == pytest.approx(1.0)


def test_what_one_hunter_knows_of_anothers_action_is_not_separable_from_its_own(tmp_path: Path) -> None:
    """Both follow the prey, so the direction of the other's action carries the own one, and erasing it moves actions.

    Without what it carries of the own action, about half of the effect is left: no more than that of other directions.
    """
    run = copytree(DATA / "simple_tag", tmp_path / "tag")
    site, other = "adversary/actor/hidden_1", ("adversary_1", "action")
    with record(run, episodes=16, sites=site, seed=2000, values=False, progress=False) as recording:
        decoding = decode(recording, site=site, label=other, agent="adversary_0", n_shuffles=1, progress=False)
    result = usage(run, decoding, agent="adversary_0", given="action", episodes=16, seed=5200, progress=False)
    assert result.conclusion == "not separable" and "own action" in result.not_separable_from
    assert result.of("erase", given=True).effect < 0.75 * result.of("erase").effect
    assert result.of("erase").p_value < 0.05
    assert result.verdict.startswith("Not separable from ") and "action: whether adversary_0 uses" in result.verdict
    unasked = usage(run, decoding, agent="adversary_0", episodes=16, seed=5200, progress=False)
    assert unasked.verdict == result.verdict and unasked.settings["given"] == ["own action"]


def test_the_weights_are_those_that_were_decoded(tmp_path: Path) -> None:
    """Of several checkpoints of a run the decoded one, also for tuned units, unless another is asked for."""
    copytree(DATA / "speaker_listener", tmp_path / "talkers")
    run, site = Run.open(tmp_path / "talkers"), "listener/actor/hidden_2"
    options = {"site": site, "agent": "listener_0", "label": "goal"}
    with record(run, episodes=12, checkpoint=[10, 130], sites=site, values=False, progress=False) as recording:
        decoding = decode(recording, checkpoint=10, n_shuffles=1, progress=False, **options)
        tuned = tuning(recording, checkpoint=10, n_shuffles=20, n_bootstrap=20, **options)
    few = {"episodes": 2, "progress": False}
    used = usage(run, decoding, n_random_directions=1, **few)
    assert used.settings["checkpoint"] == 10 == mediation(run, tuned, **few).checkpoint
    assert not any("checkpoint" in warning for warning in used.warnings)
    last = usage(run, decoding, n_random_directions=1, checkpoint="last", **few)
    assert last.settings["checkpoint"] == 130
    warning = "was fitted to checkpoint 10, but checkpoint 130 is played"
    assert f"the decoder {warning}" in last.warnings
    assert f"the tuning {warning}" in mediation(run, tuned, checkpoint=130, **few).warnings


def test_the_own_action_is_given_where_the_concept_is_what_another_agent_does() -> None:
    agents = ("a_0", "a_1")
    assert with_own_action(None, "a_1 action = left", "a_0", agents) == ["action"]
    assert with_own_action(None, "a_1 action 1", "a_0", agents) == ["action"]  # a component of several
    assert with_own_action("goal", "a_1 reward", "a_0", agents) == ["goal", "action"]
    assert with_own_action([("a_0", "action")], "a_1 action", "a_0", agents) == [("a_0", "action")]
    for concept in ("a_0 action", "a_1 velocity_x", "a_1 observation dx", "goal = red", "action"):
        assert with_own_action("goal", concept, "a_0", agents) == "goal"


@pytest.mark.parametrize(("agreement", "expected"), [(0.95, ("used", ())), (0.77, ("not separable", ("action",)))])
def test_what_is_left_without_the_given_counts_only_where_it_is_estimated_well(
    agreement: float, expected: tuple[str, tuple[str, ...]]
) -> None:
    strong = UsageTest("erase", 0.4, 0.35, 0.45, 0.1, 0.2, 0.01, 0.2, 0.01, 0.0, 0.0, 0.0)
    tests = tuple(replace(strong, edit=edit, given=given) for given in ("", "action") for edit in ("erase", "steer"))
    evidence = SimpleNamespace(negligible=0.02, given_names=("action",), tests=tests, confounds=(), agreement=agreement)
    assert conclude(evidence, True) == expected  # type: ignore[arg-type]
