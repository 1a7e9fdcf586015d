"""intervene: a policy whose every number is known by hand, scipy's paired test, and a speaker who is silenced."""

from __future__ import annotations

import json
import shutil
from math import nan
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from marlnb.analysis.data.trajectories import Trajectories
from marlnb.analysis.interventions.intervene import intervene
from marlnb.analysis.interventions.outcomes import _actions
from marlnb.analysis.stats.divergence import kl_divergence, total_variation
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.cli import main
from marlnb.errors import AnalysisError, ConfigError, RunError, SiteError
from marlnb.models.hooks.directions import Clamp, Direction
from marlnb.models.hooks.edits import Ablate, Noise, Scale
from marlnb.models.hooks.edits_channel import BlockChannel, PermuteChannel
from marlnb.models.hooks.edits_patch import Patch
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.policies.distributions import Categorical, Gaussian, MultiDiscrete
from marlnb.models.policies.q_policy import QPolicy
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.recording.capture.recorder import record
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec
from marlnb.training.policies.agents import Agents
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.run import Run
from marlnb.training.runs.saved_edits import list_edits, load_edits, save_edits
from tests.recording.runs import LivesConfig, make_run

TALKERS = Path(__file__).parents[3] / "data" / "speaker_listener"


@pytest.fixture
def talkers(tmp_path: Path) -> Run:
    shutil.copytree(TALKERS, tmp_path / "talkers")
    return Run.open(tmp_path / "talkers")


@pytest.fixture
def lives(tmp_path: Path) -> Run:
    return make_run(tmp_path / "lives", LivesConfig(), GRUConfig(hidden=(8,), recurrent_size=6), MLPConfig(hidden=(8,)))


def test_intervals_and_p_values_are_scipys() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(0, 1, 25), rng.normal(0.4, 1.2, 25)
    result, oracle = paired_test(after - before), stats.ttest_rel(after, before)
    interval = oracle.confidence_interval(0.95)
    np.testing.assert_allclose(
        [result.p_value, result.low, result.high], [oracle.pvalue, interval.low, interval.high], rtol=1e-10
    )
    # a true difference of the detectable size is found in 80 of 100 cases
    size = result.detectable * np.ones(4000)  # type: ignore[operator]
    spread = float(np.std(after - before, ddof=1))
    samples = size[:, None] + rng.normal(0, spread, (4000, 25))
    power = (stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05).mean()
    assert abs(power - 0.8) < 0.03
    assert paired_test(np.array([1.0, np.nan, 1.0])).n == 2 and paired_test(np.zeros(5)).p_value == 1.0
    assert paired_test(np.array([2.0])).detectable is None and paired_test(np.full(5, 3.0)).low == 3.0


def test_distances_between_distributions_are_those_of_textbooks() -> None:
    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.25, 0.5])
    categorical = Categorical(3)
    assert float(total_variation(categorical, p.log(), q.log() + 3)) == pytest.approx(0.25)  # type: ignore[arg-type]
    expected = float(stats.entropy(p.numpy(), q.numpy()))
    assert float(kl_divergence(categorical, p.log(), q.log() + 3)) == pytest.approx(expected)  # type: ignore[arg-type]
    both = MultiDiscrete((3, 3))
    joint = [torch.cat((x.log(), p.log())) for x in (p, q)]
    assert float(total_variation(both, *joint)) == pytest.approx(0.125)  # type: ignore[arg-type]
    assert float(kl_divergence(both, *joint)) == pytest.approx(expected)  # type: ignore[arg-type]
    gaussian = Gaussian((-1.0,), (1.0,))
    first, second = torch.tensor([0.3, 0.1]), torch.tensor([-0.2, 0.4])
    normals = [torch.distributions.Normal(x[0], x[1].exp()) for x in (first, second)]
    oracle = torch.distributions.kl_divergence(*normals)
    assert float(kl_divergence(gaussian, first, second)) == pytest.approx(float(oracle))  # type: ignore[arg-type]
    assert total_variation(gaussian, first, second) is None


def test_steering_changes_action_distributions_as_the_heads_weights_predict(lives: Run) -> None:
    """Nothing in toy/lives depends on actions: direct and total effects are one, returns stay, and both are computed
    here from the head's weights, step by step."""
    policy = lives.policies()["a"]
    vector = torch.zeros(6)
    vector[2] = 1.0
    along = Direction("a/actor/head", "a_2", (0.0, 1.0, 0.0, 0.0), 0.0, 0.5, "second choice")
    seed, episodes = 100, 8
    result = intervene(lives, along.steer(3.0), episodes=episodes, seed=seed, n_envs=5)
    expected = []
    for k in range(episodes):
        distances, state = [], None
        for t in range(3 + (seed + k) % 7):
            seen = torch.tensor([[seed + k, t, agent] for agent in range(3)]).float()[None] / 10
            if t >= 3:
                seen[:, 1] = 0.0
            logits, state = policy.logits(seen, recurrent=state)
            allowed = (torch.arange(3)[:, None] + torch.arange(4)) % 4 != t % 4
            logits = torch.where(allowed, logits[0].detach(), torch.tensor(-torch.inf))
            moved = logits.clone()
            moved[2, 1] += 1.5
            distances.append(float((logits[2].softmax(-1) - moved[2].softmax(-1)).abs().sum() / 2))
        expected.append(np.mean(distances))
    for side in ("tv_direct", "tv_total"):
        effect = result.of(side, "a_2")
        assert (
            effect.edited and effect.n == episodes and effect.difference == pytest.approx(np.mean(expected), abs=1e-5)
        )
        interval = stats.t.interval(0.95, episodes - 1, np.mean(expected), stats.sem(expected))
        assert (effect.low, effect.high) == pytest.approx((max(interval[0], 0), interval[1]), abs=1e-5)
    for agent in ("a_0", "a_1"):
        assert result.of("tv_total", agent).difference == 0 and not result.of("tv_total", agent).edited
    assert result.of("return", "a").difference == 0 and result.of("length").before == np.mean(
        [3 + (seed + k) % 7 for k in range(episodes)]
    )
    heights = [np.mean(10 * np.arange(3 + (seed + k) % 7)) + 2 for k in range(episodes)]
    assert result.of("label", "height/a_2").before == pytest.approx(np.mean(heights))
    assert any("only" in note for note in result.warnings)


def test_a_label_of_an_agent_counts_while_the_agent_lives(lives: Run) -> None:
    """Height is 10 t + agent; a_1 lives at t = 0, 1, 2, and a_0 for 3 steps in episode 0 and 4 in episode 1."""
    result = intervene(lives, Scale("a/actor/hidden_1", 1.0), episodes=2, seed=0)
    heights = {"a_0": ((10 + 15) / 2, (20 + 30) / 2), "a_1": (11, 21)}
    for agent, expected in heights.items():
        effects = [result.of(outcome, f"height/{agent}") for outcome in ("label", "label_end")]
        assert tuple(effect.before for effect in effects) == tuple(effect.after for effect in effects) == expected


def test_an_edit_without_effect_draws_a_warning(lives: Run) -> None:
    result = intervene(lives, Scale("a/actor/hidden_1", 1.0), episodes=4)
    assert any("nothing at all" in note for note in result.warnings) and "NOT TO BE TRUSTED" in repr(result)
    assert all(effect.difference == 0 for effect in result.effects)


def test_a_silenced_speaker_costs_what_the_quickstart_shows(talkers: Run) -> None:
    """-15 to -21 without messages, -7.5 with: known from the quickstart; always the same word costs somewhat more."""
    silent = intervene(talkers, Ablate("speaker/actor/head"), episodes=200)
    effect = silent.of("return", "listener")
    assert -24 < effect.after < -15 and -8.5 < effect.before < -6.5 and effect.high < -4
    assert effect.before == pytest.approx(evaluate(talkers, episodes=200).return_mean["listener"], abs=0.05)
    assert silent.of("tv_direct", "listener_0").difference == 0 < silent.of("tv_total", "listener_0").low
    assert silent.of("changed_direct", "speaker_0").difference == pytest.approx(2 / 3, abs=0.12)
    assert not silent.warnings and silent.of("label_end", "goal_distance").low > 0.2
    blocked = intervene(talkers, BlockChannel("listener"), episodes=100)
    permuted = intervene(talkers, PermuteChannel("listener"), episodes=100)
    assert -21 < blocked.of("return", "listener").after < -14 and blocked.of("return", "listener").high < -5
    assert permuted.of("return", "listener").high < -8
    shares = silent.arms[0].actions["speaker_0"]
    assert shares[0] == ("say_0", "say_1", "say_2") and shares[2] == (1.0, 0.0, 0.0)


def test_sampled_actions_get_the_same_noise(talkers: Run) -> None:
    """With noise unmatched, an edit that changes nothing would change a third of the actions."""
    result = intervene(talkers, Scale("listener/actor/hidden_1", 1.0), episodes=20, explore=True, n_envs=8)
    assert all(effect.difference == 0 for effect in result.effects)
    assert (
        result.of("return", "listener").before
        != intervene(talkers, Scale("listener/actor/hidden_1", 1.0), episodes=20, n_envs=8)
        .of("return", "listener")
        .before
    )


def test_strengths_and_partners(talkers: Run) -> None:
    result = intervene(talkers, Noise("speaker/actor/head"), strengths=[0, 4], episodes=40)
    assert (
        result.of("return", "listener", strength=0).difference == 0 > result.of("return", "listener", strength=4).high
    )
    assert set(result.table()["strength"]) == {0.0, 4.0} and len(result.returns["listener_0"]) == 3
    with pytest.raises(AnalysisError, match=r"several strengths, \[0, 4\]"):
        _ = result.effects
    swapped = intervene(talkers, partners={"speaker": (talkers, 70)}, episodes=100)
    effect = swapped.of("return", "listener_0")
    assert effect.high < -2 and not effect.edited and swapped.of("tv_direct", "speaker_0").edited
    assert swapped.partners == {"speaker": "talkers, checkpoint 70"}
    with pytest.raises(AnalysisError, match="'speker'; did you mean 'speaker'"):
        intervene(talkers, partners={"speker": talkers})
    with pytest.raises(ConfigError, match="got neither"):
        intervene(talkers)
    with pytest.raises(ConfigError, match="needs an edit with a strength"):
        intervene(talkers, BlockChannel("listener", value=0.0), strengths=[1])
    for wrong, message in (
        ([nan, 1], r"strengths\[0\] must be a finite number; got nan"),
        (["a"], r"strengths\[0\] must be a number; got 'a'"),
        (2, "strengths must be a list of numbers; got 2"),
    ):
        with pytest.raises(ConfigError, match=message):
            intervene(talkers, Noise("speaker/actor/head"), strengths=wrong)  # type: ignore[arg-type]
    with pytest.raises(SiteError):
        intervene(talkers, Scale("listener/actor/hiden_1"), episodes=2)


def test_a_partner_that_draws_other_numbers_leaves_the_noise_of_other_groups(lives: Run) -> None:
    """Nothing in this environment depends on actions, and group b acts after group a."""
    groups = lives.spec.groups
    partner = Agents({group.name: RandomPolicy(group) for group in groups}, lives.experiment.env, lives.path)
    result = intervene(lives, partners={"a": partner}, explore=True, episodes=8)
    assert result.of("changed_total", "a_0").low > 0
    assert result.of("changed_total", "b_0").difference == 0


@pytest.mark.parametrize("edit", [Scale("listener/actor/hidden_1"), Clamp("listener/actor/hidden_1")])
def test_strength_0_can_be_an_edit(talkers: Run, edit: Scale | Clamp) -> None:
    result = intervene(talkers, edit, strengths=[0], episodes=30)
    assert result.of("return", "listener").high < 0 and not result.warnings


def test_an_outcome_without_a_value_is_no_change(lives: Run) -> None:
    """a_1 dies at its third step, so that its actions are never compared."""
    result = intervene(lives, Scale("a/actor/hidden_1", 1.0), rows="t > 2", episodes=8)
    assert result.of("tv_direct", "a_1").n == 0 and any("changed nothing" in warning for warning in result.warnings)


def test_the_verdict_is_about_the_strength_that_changes_actions_most(talkers: Run) -> None:
    result = intervene(talkers, Scale("listener/actor/hidden_1"), strengths=[0, 1], episodes=30)
    assert result.of("tv_direct", "listener_0", strength=1).difference == 0 and not result.warnings
    assert "(strength 0), the return of speaker and listener changes by" in result.verdict
    assert result.of("return", "listener", strength=0).after == result._repr_table()["with"][1]


def test_edits_saved_with_a_run_give_the_same_numbers_again(talkers: Run, capsys: pytest.CaptureFixture[str]) -> None:
    record(talkers, episodes=20, progress=False).close()
    source = talkers.recordings["recording"]
    edits = [
        Ablate("listener/observation", "mean", units="message_*", source=source),
        Scale("speaker/actor/hidden_1", 0.5),
    ]  # type: ignore[arg-type]
    first = intervene(talkers, edits, episodes=30, save="deaf", note="hears the mean message")
    kept = json.loads((talkers.path / "edits" / "deaf.intervention.json").read_text())
    assert kept["arms"][0]["effects"][0]["difference"] == first.effects[0].difference
    moved = talkers.path.with_name("moved")
    shutil.move(talkers.path, moved)
    again = intervene(moved, "deaf", episodes=30)
    assert again.effects == first.effects
    edited = evaluate(moved, episodes=30, edits=load_edits(moved, "deaf"), n_envs=30)
    assert edited.return_mean["listener"] == pytest.approx(first.of("return", "listener").after)
    capsys.readouterr()
    words = ["evaluate", str(moved), "--edits", "deaf", "--episodes", "30", "--n-envs", "30", "--json"]
    assert main(words) == 0 and json.loads(capsys.readouterr().out)["return_mean"] == edited.return_mean
    table = list_edits(moved)
    assert table["name"].tolist() == ["deaf"] and table["note"][0] == "hears the mean message"
    with pytest.raises(RunError, match="'daef'; did you mean 'deaf'"):
        load_edits(moved, "daef")
    with pytest.raises(RunError, match="exists already"):
        save_edits(moved, "deaf", edits[1])
    with pytest.raises(ConfigError, match="letters"):
        save_edits(moved, "../deaf", edits[1])


def test_an_edit_that_json_cannot_state_fails_before_anything_is_played(
    lives: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marlnb.analysis.interventions.intervene.roll_out", None)
    with pytest.raises(TypeError, match="not JSON serializable"):
        intervene(lives, Ablate("a/actor/hidden_1", seed=1j), episodes=2)  # type: ignore[arg-type]


def test_patching_a_recurrent_state_changes_later_actions(lives: Run) -> None:
    """A GRU's state patched at one step alone changes the distributions from that step on."""
    record(lives, episodes=6, seed=40, n_envs=3, values=False, progress=False).close()
    patch = Patch("a/actor/gru", lives.recordings["recording"], episode="other", t=1)  # type: ignore[arg-type]
    result = intervene(lives, patch, episodes=6, seed=40, n_envs=3)
    assert result.of("tv_direct", "a_0").low >= 0 and result.of("tv_direct", "a_0").difference > 1e-4


def test_actions_are_compared_at_steps_at_which_the_agent_acts_in_both_episodes() -> None:
    """One agent takes 0 twice; with the edit 0, and then 1, which does not count since it waits."""
    group = GroupSpec("a", ("a_0",), ObservationSpec((1,)), ActionSpec("discrete", (2,)))
    policy, none = QPolicy(group, MLPConfig(hidden=(4,))), {"a": None}

    def episode(actions: list[int], acting: list[bool]) -> Trajectories:
        action, acts = (torch.tensor(values)[:, None, None] for values in (actions, acting))
        spec, present = EnvSpec("test", (group,)), torch.ones(2, 1, dtype=torch.bool)
        return Trajectories(spec, 0, present, {}, {"a": action}, {}, none, {"a": acts}, {}, None, {}, {}, None)  # type: ignore[arg-type]

    before, after = episode([0, 0], [True, True]), episode([0, 1], [True, False])
    (outcome,) = _actions(policy, before, after, None, before.acting["a"]).values()
    assert outcome.after.tolist() == [0.0]


def test_mean_over_time_skips_masked_steps() -> None:
    from marlnb.analysis.interventions.outcomes import mean_over_time

    values: Tensor = torch.tensor([[1.0, 5.0], [3.0, torch.nan]])
    when = torch.tensor([[True, False], [True, False]])
    assert mean_over_time(values, when)[0] == 2.0 and np.isnan(mean_over_time(values, when)[1])


def test_bootstrap_intervals_are_scipys_and_the_default_stays(talkers: Run) -> None:
    edit = BlockChannel("listener")
    plain, drawn = (
        intervene(talkers, edit, episodes=40, intervals=intervals)  # type: ignore[arg-type]
        for intervals in ("t", "bootstrap")
    )
    assert plain.effects == intervene(talkers, edit, episodes=40).effects and plain.settings["intervals"] == "t"
    before, after = (np.array(values) for values in drawn.returns["listener_0"])
    oracle = stats.bootstrap((after - before,), np.mean, batch=512, rng=np.random.default_rng(1000))
    result, as_before = drawn.of("return", "listener_0"), plain.of("return", "listener_0")
    np.testing.assert_allclose((result.low, result.high), oracle.confidence_interval, rtol=1e-10)
    assert (result.low, result.high) != (as_before.low, as_before.high)
    assert (result.p_value, result.p_holm, result.difference) == (
        as_before.p_value,
        as_before.p_holm,
        as_before.difference,
    )
    with pytest.raises(ConfigError, match="no kind 'bca' of intervals"):
        intervene(talkers, edit, episodes=2, intervals="bca")  # type: ignore[arg-type]


def test_rows_choose_the_steps_of_effects_on_actions_and_given_the_episodes(talkers: Run) -> None:
    edit = PermuteChannel("listener")
    every, late = (intervene(talkers, edit, episodes=30, n_envs=20, rows=rows) for rows in (None, "t >= 20"))
    one = [intervene(talkers, edit, episodes=30, n_envs=20, rows=f"t == {t}") for t in range(20, 25)]
    by_step = [result.of("tv_direct", "listener_0").difference for result in one]
    assert late.of("tv_direct", "listener_0").difference == pytest.approx(np.mean(by_step), abs=1e-6)
    assert late.of("tv_direct", "listener_0") != every.of("tv_direct", "listener_0")
    assert late.of("return", "listener") == every.of("return", "listener") and "t >= 20" in late.notes[0]
    only = intervene(talkers, edit, episodes=4, rows="message_0 == 1")
    assert "speaker has no such step" in only.notes[0]
    with pytest.raises(AnalysisError, match="did you mean 'message_0'"):
        intervene(talkers, edit, episodes=4, rows="massage_0 == 1")

    result = intervene(talkers, edit, episodes=30, n_envs=20, given="goal")
    red = np.array(result.settings["given"]) == "goal = red"
    assert red.sum() == 1 and set(result.arms[0].by_class) == {"goal = red", "goal = green", "goal = blue"}
    parts = [result.of("return", "listener", given=name) for name in result.arms[0].by_class]
    assert sum(part.n for part in parts) == 30
    weighted = sum(part.n * part.difference for part in parts) / 30
    assert weighted == pytest.approx(result.of("return", "listener").difference)
    assert set(result.table()["given"]) == {"", *result.arms[0].by_class}
    shown = result._repr_table()
    red = shown[(shown["given"] == "goal = red") & (shown["of"] == "listener")]
    assert red["without"].item() == result.of("return", "listener", given="goal = red").before
    with pytest.raises(AnalysisError, match="changes during an episode"):
        intervene(talkers, edit, episodes=4, given=("listener_0", "action"))
    with pytest.raises(AnalysisError, match="without classes"):
        intervene(talkers, edit, episodes=4, given="goal_distance")


def test_a_verdict_names_each_group_and_averages_none(tmp_path: Path) -> None:
    shutil.copytree(TALKERS.parent / "simple_tag", tmp_path / "tag")
    result = intervene(Run.open(tmp_path / "tag"), Ablate("adversary/actor/hidden_2"), episodes=30)
    hunters, prey = result.of("return", "adversary"), result.of("return", "agent")
    assert f"{hunters.difference:+.3g}" in result.verdict and f"{prey.difference:+.3g}" in result.verdict
    assert repr(result).startswith(result.verdict) and "30 episodes" in result.verdict
