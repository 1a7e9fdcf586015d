"""The scores of findings written by hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from marlnb.errors import AnalysisError
from marlnb.groundtruth import AnswerKey, Finding, Node, planted, score
from marlnb.groundtruth.benchmark import Benchmark
from marlnb.groundtruth.planted_mixer import mixed_policy, mixing_weights
from marlnb.groundtruth.scoring.circuit_claims import (
    AgentsClaim,
    CodeClaim,
    CompleteClaim,
    EffectClaim,
    InfluenceClaim,
    NecessaryClaim,
    OnsetClaim,
    SubspaceClaim,
    UnitsClaim,
    ValueWeightClaim,
    principal_overlap,
)
from marlnb.groundtruth.scoring.faithfulness import faithfulness
from marlnb.groundtruth.scoring.feature_claims import FeatureClaim, FeatureEffectClaim, SpanClaim
from marlnb.groundtruth.scoring.score import Score

UNIT = Node("agent_1", "agent/actor/hidden_2", (3,), readout=((2, (4.0,)),))
EARLY = Node("agent_1", "agent/actor/hidden_1", (0, 5), exact=True)
PLANE = Node(
    "agent_1",
    "agent/actor/gru",
    (0, 1, 2),
    basis=((1.0, 0.0, 0.0, 0.0), (0.0, 0.6, 0.8, 0.0)),
    readout=((1, (2.0, 0.6, 0.8)),),
)
DECOYS = (Node("agent_1", UNIT.site, (7,)), Node("agent_0", UNIT.site, (7,)), Node("agent_0", EARLY.site, (2,)))


def key_of(*nodes, **more):
    fields = {"name": "toy", "network": "mlp", "shared": True, "seed": 0, "env": "x", "agents": ("agent_1",)}
    return AnswerKey(**{**fields, "nodes": nodes, "decoys": DECOYS, **more})


def finding_of(attempts, *claims):
    return Finding("by hand", "toy", "mlp", True, 0, attempts, claims)


def units(agent, site, *named):
    return UnitsClaim(agent=agent, site=site, units=named)


def test_units_are_what_both_name_over_what_either_names():
    result = score(
        finding_of(("units",), units("agent_1", UNIT.site, 3, 4), units("agent_1", EARLY.site, 5)), key_of(UNIT, EARLY)
    )
    assert [item.recovered for item in result.items] == [0.5, 0.5]
    assert result.recovered == 0.5 and result.by_kind() == {"units": 0.5}
    assert result.strays == pytest.approx(1 / 3) and (result.decoys_claimed, result.decoys) == (0, 3)


def test_decoys_are_counted_once_each_and_only_where_claims_could_name_them():
    claims = (units("agent_1", UNIT.site, 3, 7), units("agent_0", UNIT.site, 7, 8))
    result = score(finding_of(("units",), *claims), key_of(UNIT))
    assert (result.decoys_claimed, result.decoys) == (2, 3) and result.false_discovery_rate == pytest.approx(2 / 3)
    assert result.strays == 0.25
    by_agent = score(finding_of(("agents",), AgentsClaim(agents=("agent_0", "agent_1"))), key_of(UNIT))
    assert (by_agent.decoys_claimed, by_agent.decoys) == (1, 1) and by_agent.recovered == 0.5
    nothing = score(finding_of(("sites",)), key_of(UNIT))
    assert math.isnan(nothing.false_discovery_rate) and nothing.recovered == 0.0


def test_a_subspace_is_scored_by_its_principal_angles():
    half = SubspaceClaim(agent="agent_1", site=PLANE.site, basis=((2.0, 0.0, 0.0, 0.0),))
    assert score(finding_of(("subspace",), half), key_of(PLANE)).recovered == pytest.approx(0.5)
    tilted = SubspaceClaim(agent="agent_1", site=PLANE.site, basis=((1.0, 0, 0, 0), (0, 0.6, 0.8, 1.0)))
    assert score(finding_of(("subspace",), tilted), key_of(PLANE)).recovered == pytest.approx((1 + 0.5) / 2)
    more_rows = replace(tilted, basis=(*PLANE.basis, PLANE.basis[0], (0.0, 0.0, 0.0, 0.0)))
    assert score(finding_of(("subspace",), more_rows), key_of(PLANE)).recovered == pytest.approx(1.0)
    assert score(finding_of(("subspace",), replace(tilted, basis=())), key_of(PLANE)).recovered == 0.0
    assert principal_overlap(np.eye(4)[:2], np.eye(4)[2:]) == 0.0
    assert principal_overlap(np.array([[1.0, 1.0], [1.0, -1.0]]), np.eye(2)) == pytest.approx(1.0)


def test_a_direction_through_a_decoy_is_a_discovery_of_it():
    basis = tuple(np.eye(8)[7] * 0.9 + np.eye(8)[3] * 0.4)
    through = SubspaceClaim(agent="agent_1", site=UNIT.site, basis=(basis,))
    result = score(finding_of(("subspace",), through), key_of(UNIT))
    assert (result.decoys_claimed, result.decoys, result.items) == (1, 3, ())


@pytest.mark.parametrize(("value", "right"), [(4.3, 1.0), (3.5, 0.0), (-4.0, 0.0)])
def test_an_effect_is_right_within_a_tenth(value, right):
    step = tuple(np.eye(8)[3])
    claim = EffectClaim(agent="agent_1", site=UNIT.site, direction=step, output=2, value=value)
    assert score(finding_of(("effect",), claim), key_of(UNIT)).recovered == right
    other = EffectClaim(agent="agent_1", site=UNIT.site, direction=step, output=1, value=value)
    assert score(finding_of(("effect",), other), key_of(UNIT)).recovered == 0.0


def test_an_effect_of_a_plane_is_along_a_direction_in_it():
    inside = EffectClaim(agent="agent_1", site=PLANE.site, direction=(0.0, 3.0, 4.0, 0.0), output=1, value=5.0)
    assert score(finding_of(("effect",), inside), key_of(PLANE)).recovered == 1.0
    outside = EffectClaim(agent="agent_1", site=PLANE.site, direction=(0.0, 0.8, -0.6, 0.0), output=1, value=0.0)
    assert score(finding_of(("effect",), outside), key_of(PLANE)).recovered == 0.0


def test_many_guesses_at_an_effect_score_the_share_that_is_right():
    def guess(value, *direction, site=PLANE.site, output=1):
        return EffectClaim(agent="agent_1", site=site, direction=direction, output=output, value=value)

    in_plane = [guess(value, 0.0, 3.0, 4.0, 0.0) for value in (5.0, -5.0, 50.0, 0.5)]
    assert score(finding_of(("effect",), *in_plane), key_of(PLANE)).recovered == 0.25
    of_unit = [guess(value, *np.eye(8)[3], site=UNIT.site, output=2) for value in (4.0, 8.0)]
    assert score(finding_of(("effect",), *of_unit), key_of(UNIT)).recovered == 0.5
    for value, right in ((1e-7, 1.0), (0.2, 0.0)):  # the output grows by 2 * -0.5 + 0.6 * 0.6 + 0.8 * 0.8 = 0
        zero = guess(value, -0.5, 0.6, 0.8, 0.0)
        assert score(finding_of(("effect",), zero), key_of(PLANE)).recovered == right


def test_onsets_are_right_to_the_step():
    claim = OnsetClaim(agent="agent_1", site=PLANE.site, steps=((0, 4), (1, 5), (7, 1)))
    key = key_of(PLANE, onset="told")
    assert score(finding_of(("onset",), claim), key, onsets={0: 4, 1: 6, 2: 3, 7: 1}).recovered == 0.5
    with pytest.raises(AnalysisError, match="onset"):
        score(finding_of(("onset",), claim), key)
    assert score(finding_of(("onset",), claim), key_of(PLANE)).items == ()


def test_codes_influences_and_what_is_left_of_the_behaviour():
    key = key_of(UNIT, code=(2, 0, 1), influences=(("agent_0", "agent_1"),))
    claims = (
        CodeClaim(code=(2, 1, 0)),
        InfluenceClaim(pairs=(("agent_0", "agent_1"), ("agent_1", "agent_0"))),
        CompleteClaim(agent="agent_1", value=0.9),
        NecessaryClaim(agent="agent_1", value=-0.2),
    )
    result = score(finding_of(("code", "influence", "complete", "necessary"), *claims), key)
    assert result.by_kind() == pytest.approx({"code": 1 / 3, "influence": 0.5, "complete": 0.9, "necessary": 1.0})
    assert score(finding_of(("complete",)), key).recovered == 0.0
    constant = CompleteClaim(agent="agent_1", value=math.nan), NecessaryClaim(agent="agent_1", value=math.nan)
    assert score(finding_of(("complete", "necessary"), *constant), key).items == ()  # logits that do not vary
    nothing_there = score(finding_of(("influence",), claims[1]), key_of(UNIT))
    assert nothing_there.items == () and (nothing_there.decoys_claimed, nothing_there.decoys) == (2, 2)
    empty = score(finding_of(("influence",)), key_of(UNIT))
    assert math.isnan(empty.recovered)  # no credit for claiming nothing
    assert json.loads(json.dumps(empty.to_json(), allow_nan=False))["recovered"] is None


def test_a_part_is_all_that_the_claims_of_a_site_name(planted_instance):
    """The plane drives every logit of the concept: all of it remains, whether it is claimed at once or in pieces."""
    subject, recording = planted_instance("partner_goal", "mlp", True)
    node = next(node for node in subject.key.nodes if node.readout)
    named, width = {"agent": node.agent, "site": node.site}, len(node.basis[0])
    by_unit = [units(node.agent, node.site, unit) for unit in node.units]
    by_direction = [SubspaceClaim(**named, basis=(row,)) for row in node.basis]
    for kind, claims in (("units", by_unit), ("subspace", by_direction)):
        (part,) = faithfulness(subject, recording, finding_of((kind,), *claims))
        assert (part.kept, part.removed) == pytest.approx((1.0, 0.0), abs=2e-3)
        (last,) = faithfulness(subject, recording, finding_of((kind,), claims[-1]))
        assert last.kept < 0.9
    both = finding_of(("units", "subspace"), *by_unit, SubspaceClaim(**named, basis=(tuple(np.eye(width)[0]),)))
    assert faithfulness(subject, recording, both)[0].kept < 0.9  # a subspace replaces the units


def test_findings_are_json_and_say_what_is_wrong_with_them():
    finding = finding_of(("units", "code"), units("agent_1", UNIT.site, 3), CodeClaim(code=(0, 1)))
    assert Finding.from_json(json.loads(json.dumps(finding.to_json()))) == finding
    with pytest.raises(AnalysisError, match="'unit'"):
        Finding.from_json({**finding.to_json(), "claims": [{"kind": "units", "unit": [1]}]})
    with pytest.raises(AnalysisError, match="missing: claims"):
        Finding.from_json({k: v for k, v in finding.to_json().items() if k != "claims"})
    with pytest.raises(AnalysisError, match="no kind 'neurons' of claim"):
        Finding.from_json({**finding.to_json(), "claims": [{"kind": "neurons", "units": [1]}]})
    with pytest.raises(AnalysisError, match="no kind 'neurons' of claim"):
        finding_of(("neurons",))
    with pytest.raises(AnalysisError, match="missing: site, units"):
        Finding.from_json({**finding.to_json(), "claims": [{"kind": "units", "agent": "agent_0"}]})
    with pytest.raises(AnalysisError, match="instance"):
        score(finding_of(()), key_of(UNIT, seed=4))
    with pytest.raises(AnalysisError, match="shared of a finding: expected bool, got 'false'"):
        Finding.from_json({**finding.to_json(), "shared": "false"})
    with pytest.raises(AnalysisError, match="'code', which is not in its attempts"):
        replace(finding, attempts=("units",))
    with pytest.raises(AnalysisError, match="twice"):
        finding_of(("units", "units"))


def test_shares_are_right_within_a_tenth_and_a_weight_of_zero_is_a_decoy():
    """The weights are the seed's order of 0, 0.5 and 2; who has which is read off the policy's own mixer."""
    subject = planted("role_switch", seed=1)
    policy = mixed_policy(subject.agents, "agent", mixing_weights(("agent_0", "agent_1", "agent_2"), "role_switch", 1))
    q = torch.randn(5, 3, dtype=torch.float64).float().requires_grad_()
    total = policy.mixer(q, torch.zeros(5, policy.mixer.hyper.in_features))
    (slope,) = torch.autograd.grad(total.sum(), q)
    assert torch.allclose(total, (q * slope).sum(-1), atol=1e-4) and (slope == slope[0]).all()
    weights = dict(zip(("agent_0", "agent_1", "agent_2"), slope[0].tolist()))
    assert sorted(weights.values()) == [0.0, 0.5, 2.0]
    q_ = subject.task
    claims = tuple(ValueWeightClaim(agent=a, value=1.05 * w) for a, w in weights.items() if w < 2)
    result = score(Finding("x", q_.name, q_.network, q_.shared, q_.seed, ("value_weight",), claims), subject.key)
    assert [item.recovered for item in result.items if item.what.endswith("0.5")] == [1.0]
    assert [item.recovered for item in result.items if item.what.endswith("2")] == [0.0]
    assert (result.decoys_claimed, result.decoys) == (0, 1)  # a weight of 0 is right
    (idle,) = (agent for agent, weight in weights.items() if not weight)
    for value, expected in ((1e-6, 0), (0.2, 1)):
        false = replace(result.finding, claims=(ValueWeightClaim(agent=idle, value=value),))
        assert score(false, subject.key).decoys_claimed == expected


def test_a_feature_is_as_right_as_it_is_near_and_a_decoys_own_is_a_discovery():
    def feature(**weights):
        direction = np.zeros(8)
        for unit, weight in weights.items():
            direction[int(unit[1:])] = weight
        return FeatureClaim(agent="agent_1", site=UNIT.site, basis=(tuple(direction),))

    near = score(finding_of(("features",), feature(u0=0.6, u3=0.8), feature(u5=1.0)), key_of(UNIT))
    assert near.recovered == pytest.approx(0.64) and (near.decoys_claimed, near.decoys) == (0, 2)
    both = score(finding_of(("features",), feature(u3=0.6, u7=0.8)), key_of(UNIT))  # unit 7 is a decoy
    assert both.recovered == pytest.approx(1.0) and both.decoys_claimed == 0
    alone = score(finding_of(("features",), feature(u0=0.6, u7=0.8)), key_of(UNIT))
    assert alone.recovered == 0.0 and alone.decoys_claimed == 1
    for length in (0.1, 3.0):  # does not matter
        same = score(finding_of(("features",), feature(u0=0.6 * length, u7=0.8 * length)), key_of(UNIT))
        assert same.decoys_claimed == 1
        rest = score(finding_of(("features",), feature(u0=0.8 * length, u7=0.6 * length)), key_of(UNIT))
        assert rest.decoys_claimed == 0
    elsewhere = key_of(replace(UNIT, agent="agent_0"))
    assert score(finding_of(("features",), feature(u3=1.0)), elsewhere).recovered == 0.0


def test_a_span_is_scored_beyond_what_a_random_one_would_hold():
    def spanned(*rows):
        return SpanClaim(agent="agent_1", site=UNIT.site, basis=tuple(tuple(row) for row in rows))

    def scored(*rows):
        return score(finding_of(("span",), spanned(*rows)), key_of(UNIT)).recovered

    unit = np.eye(8)  # unit 7 is a decoy and left out: 7 dimensions
    assert scored(unit[3]) == pytest.approx(1.0)
    assert scored(unit[3], unit[0] + unit[7]) == pytest.approx(1.0)
    assert scored(unit[0]) == 0.0 and score(finding_of(("span",)), key_of(UNIT)).recovered == 0.0
    assert scored(unit[3] + unit[0]) == pytest.approx((1 / 2 - 1 / 7) / (1 - 1 / 7))
    assert scored(*unit) == 0.0  # everything
    apart = spanned(unit[3] + unit[0]), spanned(unit[0])
    assert score(finding_of(("span",), *apart), key_of(UNIT)).recovered == pytest.approx(1.0)


def test_a_move_is_right_if_the_readouts_say_so():
    def moved(value, *direction, output=2):
        return FeatureEffectClaim(agent="agent_1", site=UNIT.site, direction=direction, output=output, value=value)

    key = key_of(UNIT, minor=(Node("agent_1", UNIT.site, (0,), readout=((2, (1.0,)),)),))
    claims = (moved(4.0, 1.0, 0, 0, 0.8), moved(4.2, 1.0, 0, 0, 0.8), moved(3.2, 1.0, 0, 0, 0.8))
    assert score(finding_of(("feature_effect",), *claims), key).recovered == pytest.approx(2 / 3)
    assert score(finding_of(("feature_effect",), moved(4.2, 1.0, 0, 0, 0.8, output=1)), key).recovered == 0.0
    assert score(finding_of(("feature_effect",)), key).recovered == 0.0
    unread = moved(0.0, 0, 0, 1.0, 0)
    assert score(finding_of(("feature_effect",), unread), key).recovered == 0.0  # true of most directions
    assert score(finding_of(("feature_effect",), *claims, unread), key).recovered == pytest.approx(2 / 3)
    assert score(finding_of(("feature_effect",), claims[0], replace(unread, value=1.0)), key).recovered == 0.5


def test_directions_in_shared_units_are_scored_and_decoys_by_themselves():
    site, units = "agent/actor/hidden_2", (0, 1, 2, 3)
    node = Node("agent_1", site, units, ((1.0, 0, 0, 0),), True, ((1, (5.0, 0, 0, 0)),), ((0.8, 0.6, 0, 0),))
    decoy = Node("agent_1", site, units, basis=((0, 1.0, 0, 0),))
    key = replace(key_of(node), decoys=(decoy,))

    def scored(*rows):
        claims = [FeatureClaim(agent="agent_1", site=site, basis=(row,)) for row in rows]
        return score(finding_of(("features",), *claims), key)

    right = scored((0.8, 0.6, 0.0, 0.0))
    assert right.recovered == pytest.approx(1.0) and (right.decoys_claimed, right.decoys) == (0, 1)
    both = scored((1.0, 0.0, 0.0, 0.0), (0.0, 0.8, 0.6, 0.0))
    assert both.recovered == pytest.approx(0.64) and (both.decoys_claimed, both.decoys) == (1, 1)
    named = score(finding_of(("units",), UnitsClaim(agent="agent_1", site=site, units=units)), key)
    assert (named.decoys_claimed, named.decoys) == (0, 0)
    assert AnswerKey.from_json(json.loads(json.dumps(key.to_json()))) == key
    assert "written" not in json.dumps(key_of(UNIT).to_json())


def test_declined_claims_are_no_items_and_are_counted_as_missed():
    agents, feature = AgentsClaim(agents=("agent_1",)), np.eye(8)[7]
    full = finding_of(("agents", "features"), agents, FeatureClaim("agent_1", UNIT.site, basis=(tuple(feature),)))
    result = score(full, key_of(UNIT))
    assert result.recovered == result.recovered_of_all == 0.5 and (result.decoys_claimed, result.decoys) == (1, 3)
    declining = replace(full, claims=(agents,), abstains=("features",), doubts=("nothing here is rare",))
    result = score(declining, key_of(UNIT))
    assert result.recovered == 1.0 and result.recovered_of_all == 0.5
    assert [item.kind for item in result.abstained] == ["features"]
    assert (result.decoys_claimed, result.decoys) == (0, 1), "what it could not have claimed does not count for it"
    read = Score.from_json(json.loads(json.dumps(result.to_json())))
    assert (read.items, read.abstained, read.finding.doubts) == (result.items, result.abstained, declining.doubts)
    older = {name: value for name, value in result.to_json().items() if name not in ("abstained", "doubts")}
    assert Score.from_json(older).abstained == ()
    grid = Benchmark((result,), 0.0, {})
    assert grid.abstentions().loc["by hand"].to_dict() == {
        "features": 1.0,
        "all": 0.5,
        "recovered of what was claimed": 1.0,
        "recovered of everything": 0.5,
    }
    assert "declined" in repr(grid) and "declined" not in repr(Benchmark((), 0.0, {}))


def test_a_finding_declines_what_it_attempts_and_then_does_not_claim_it():
    agents = AgentsClaim(agents=("agent_1",))
    with pytest.raises(AnalysisError, match="span"):
        replace(finding_of(("agents",), agents), abstains=("span",))
    with pytest.raises(AnalysisError, match="abstains from 'agents' and has 1"):
        replace(finding_of(("agents",), agents), abstains=("agents",))
    declining = replace(finding_of(("span",)), abstains=("span", "complete"))
    assert Finding.from_json(json.loads(json.dumps(declining.to_json()))) == declining
    plain = {name: value for name, value in declining.to_json().items() if name not in ("abstains", "doubts")}
    assert Finding.from_json(plain).abstains == ()
