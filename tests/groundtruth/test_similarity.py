"""What stayed alike at a later checkpoint: the reworked agents themselves, and the analysis asked about them."""

from dataclasses import replace

import numpy as np
import pytest

from marlnb.analysis.data.views import View
from marlnb.groundtruth.analyses.similarity import same_by_cka_and_cca
from marlnb.groundtruth.instance import Instance
from marlnb.groundtruth.permuted_checkpoint import unchanged_units
from marlnb.groundtruth.planting import planted
from marlnb.groundtruth.scoring.circuit_claims import SimilarClaim
from marlnb.groundtruth.scoring.finding import Finding
from marlnb.groundtruth.scoring.score import score

EVERY_FATE = ("partner_goal", "mlp", False)


@pytest.mark.parametrize("asked", [EVERY_FATE, ("role_switch", "gru", True)])
def test_later_agents_choose_alike_and_hold_what_they_held_in_another_order_where_they_stayed(planted_instance, asked):
    """A unit that stayed correlates almost perfectly with one later unit; of redrawn features few do."""
    subject, recording = planted_instance(*asked)
    instance = Instance.of(subject, recording)
    for (agent, site), same in unchanged_units(subject.key).items():
        before, after = (View(recording, site, agent, policy_source=s).open().all() for s in (None, instance.later))
        moves = before.std(0) > 1e-3
        both = np.corrcoef(before[:, moves].T, after[:, after.std(0) > 1e-3].T)
        matched = np.abs(both[: moves.sum(), moves.sum() :]).max(1) > 0.99
        assert matched.mean() > 0.9 if same else matched.mean() < 0.8
    batch = instance.batch("agent")
    if batch.recurrent is None:  # a memory's units lie in another order too
        was = instance.logits("agent", batch, [])
        now = replace(instance, agents=instance.later).logits("agent", batch, [])
        assert np.abs(now - was).max() < 0.5 and was.std(0).max() > 1


def test_who_compares_recovers_what_stayed_and_takes_nothing_redrawn_for_it(planted_instance):
    subject, recording = planted_instance(*EVERY_FATE)
    kept = unchanged_units(subject.key)
    assert set(kept.values()) == {True, False} and len(kept) == 6
    instance = Instance.of(subject, recording)
    result = score(same_by_cka_and_cca(instance), subject.key)
    assert result.recovered == 1.0 and (result.decoys_claimed, result.decoys) == (0, 3)
    other, _ = planted_instance("partner_goal", "mlp", True)  # unrelated agents as the later ones: nothing stayed
    unrelated = same_by_cka_and_cca(replace(instance, later=other.agents))
    assert score(unrelated, subject.key).recovered == 0.0


def test_what_was_redrawn_is_a_decoy_and_a_wrong_answer_is_scored_low(planted_instance):
    subject, _ = planted_instance(*EVERY_FATE)
    q, kept = subject.task, unchanged_units(subject.key)
    turned = tuple(place for place, same in kept.items() if not same)
    wrong = Finding("x", q.name, q.network, q.shared, q.seed, ("similar",), (SimilarClaim(sites=turned),))
    result = score(wrong, subject.key)
    assert result.recovered == 0.0 and (result.decoys_claimed, result.decoys) == (3, 3)


def test_a_checkpoint_without_similar_sites_has_no_item():
    key = planted("role_switch", "gru", shared=True, seed=2).key
    assert not any(unchanged_units(key).values())
    nothing = Finding("nothing", key.name, key.network, key.shared, key.seed, ("similar",), ())
    assert score(nothing, key).items == ()
