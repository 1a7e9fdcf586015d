"""marlnb's analyses scored on a small part of the grid; `make groundtruth` is the whole."""

import pytest

from marlnb.errors import AnalysisError, UnknownNameError
from marlnb.groundtruth import benchmark as benchmarks
from marlnb.groundtruth.analyses import usage as usage_scorer
from marlnb.groundtruth.benchmark import DISCOVERY_TARGET, RECOVERED_TARGET, Benchmark, benchmark, run_and_score
from marlnb.groundtruth.instance import Instance, analyses

CAUSAL = [
    ("ablate", "partner_goal", "gru", True),
    ("ablate", "role_switch", "mlp", False),
    ("attribute", "partner_goal", "mlp", True),
    ("attribute", "role_switch", "gru", False),
    ("attribute_over_time", "role_switch", "gru", True),
    ("concept_activation", "role_switch", "gru", True),
    ("concept_activation", "message_code", "mlp", False),
    ("communication", "message_code", "gru", True),
    ("event_average", "partner_goal", "gru", False),
    ("influence", "message_code", "mlp", False),
    ("intervene", "decoy", "gru", True),
    ("steer", "decoy", "mlp", False),
    ("steer", "partner_goal", "gru", False),
    ("trace", "role_switch", "gru", True),
    ("roles", "decoy", "mlp", True),
    ("value_decomposition", "decoy", "gru", True),
    ("usage", "role_switch", "mlp", True),
]


@pytest.mark.parametrize(("name", "circuit", "network", "shared"), CAUSAL)
def test_an_analysis_that_asks_for_causes_finds_the_circuit_and_no_decoy(
    planted_instance, name, circuit, network, shared
):
    result = run_and_score(*planted_instance(circuit, network, shared), analyses([name])[name])
    assert result.items and result.recovered >= RECOVERED_TARGET, result.table().query("recovered < 0.99")
    assert not result.decoys or result.false_discovery_rate <= DISCOVERY_TARGET
    assert not result.strays


@pytest.mark.parametrize("name", ["decode", "tuning"])
def test_decoding_and_tuning_tell_who_holds_the_concept_and_read_no_nonsense(planted_instance, name):
    result = run_and_score(*planted_instance("role_switch", "gru", True), analyses([name])[name])
    assert result.recovered >= RECOVERED_TARGET and result.decoys_claimed == 0


def test_who_takes_what_is_decoded_for_what_is_used_finds_decoys(planted_instance):
    result = run_and_score(*planted_instance("role_switch", "gru", True), analyses(["decode_as_use"])["decode_as_use"])
    assert result.by_kind()["agents"] < 0.5 and result.decoys_claimed >= 2


def test_what_is_not_separable_from_other_quantities_is_not_claimed_as_used(planted_instance, monkeypatch):
    """The speaker's erased directions change its message, but no random direction varies as much."""
    subject, recording = planted_instance("message_code", "mlp", False)
    instance = Instance.of(subject, recording)
    site = next(site for agent, site in instance.last_pairs() if agent == "speaker_0")
    assert usage_scorer._conclusion(instance, site, "speaker_0") == "not separable"
    monkeypatch.setattr(usage_scorer, "_by_units", lambda *asked: 1.0)  # nor by single units
    (claim,) = usage_scorer.used(instance).claims
    assert "speaker_0" not in claim.agents


@pytest.mark.usefixtures("quick_dictionaries")
def test_a_dictionary_finds_rare_signals_one_by_one_and_no_rumour(planted_instance):
    subject, recording = planted_instance("sparse_code", "mlp", False)
    result = run_and_score(subject, recording, analyses(["dictionary"])["dictionary"])
    assert result.recovered >= RECOVERED_TARGET and min(result.by_kind().values()) >= RECOVERED_TARGET
    assert (result.decoys_claimed, result.decoys) == (0, 11) and not result.abstained and not result.finding.doubts
    plain = run_and_score(subject, recording, analyses(["dictionary_by_feature"])["dictionary_by_feature"])
    assert plain.recovered < RECOVERED_TARGET or plain.decoys_claimed, "with features to spare, as they are trained"


def test_only_what_a_circuit_was_made_for_is_asked_of_it(tmp_path):
    asked = {"circuits": ["sparse_code"], "episodes": 2, "path": tmp_path}
    assert benchmark([5], names=["ablate", "trace"], **asked).scores == ()


def test_a_case_holds_no_key(planted_instance):
    subject, recording = planted_instance("role_switch", "gru", True)
    instance = Instance.of(subject, recording)
    assert not any(value is subject.key for value in vars(instance).values())
    assert instance.task.key_sha256 == subject.key.sha256()


def test_tables_join_what_was_run_in_parts(planted_instance):
    parts = []
    for circuit in ("decoy", "role_switch"):
        result = run_and_score(*planted_instance(circuit, "mlp", False), analyses(["ablate"])["ablate"])
        parts.append(Benchmark((result,), 0.0, {"ablate": 1.5}).to_json())
    whole = Benchmark.join(parts)
    assert list(whole.table().columns) == ["decoy", "role_switch", "all"] and whole.seconds == {"ablate": 3.0}
    assert whole.table().loc["ablate", "decoy"] == "100.0% | 0/20"
    with pytest.raises(UnknownNameError, match="ablate"):
        analyses(["ablat"])


def test_a_grid_that_was_interrupted_continues_where_it_stopped(tmp_path, monkeypatch):
    asked = {"names": ["ablate"], "circuits": ["role_switch"], "episodes": 4, "path": tmp_path}
    made = benchmark([5], **asked)
    ledger = tmp_path / "scores.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    assert len(lines) == len(made.scores) == 4
    ledger.write_text("".join(lines[:2]) + lines[2][:50])  # killed while it wrote the third
    done = []
    monkeypatch.setattr(benchmarks, "run_and_score", lambda *asked: done.append(asked[0]) or run_and_score(*asked))
    again = benchmark([5], **asked)
    assert len(done) == 2 and [s.to_json() for s in again.scores] == [s.to_json() for s in made.scores]
    assert benchmark([5], **asked).table().equals(made.table()) and len(done) == 2
    ledger.write_text("{}\n")
    with pytest.raises(AnalysisError, match="line 1"):
        benchmark([5], **asked)
