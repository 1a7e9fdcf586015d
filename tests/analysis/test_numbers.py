"""Numbers that are out of range, or no whole ones: each analysis names the number and says what it must be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.attribution.over_time.attribute import attribute_over_time
from marlnb.analysis.communication.action_influence import action_influence
from marlnb.analysis.communication.communication import communication
from marlnb.analysis.communication.influence import influence
from marlnb.analysis.concepts.tcav import concept_activation
from marlnb.analysis.dictionaries.behaviour_preserved import behaviour_preserved
from marlnb.analysis.dictionaries.feature_labels import label_features
from marlnb.analysis.dictionaries.pruning import prune_dictionary
from marlnb.analysis.interventions.tracing import trace
from marlnb.analysis.representations.development import development
from marlnb.analysis.representations.embedding import embed
from marlnb.analysis.representations.event_average import event_average
from marlnb.analysis.representations.roles import roles
from marlnb.analysis.representations.similarity import similarity, similarity_matrix
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import ConfigError
from marlnb.recording.file.reader import Recording

SITE = "listener/actor/hidden_2"
Analysis = Callable[..., object]
RESAMPLING = (
    {"n_shuffles": 19},
    {"n_bootstrap": 2.5},
    {"seed": -1},
)


def of_two_views(recording: Recording, **options: object) -> object:
    return similarity((recording, SITE), (recording, SITE), **options)  # type: ignore[arg-type]


ANALYSES: dict[str, tuple[Analysis, dict[str, object], tuple[dict[str, object], ...]]] = {
    "tuning": (tuning, {"site": SITE, "label": "goal"}, ({"bins": 3.5}, *RESAMPLING)),
    "event_average": (
        event_average,
        {"site": SITE, "event": "goal", "value": "red"},
        ({"before": 1.5}, {"after": -1}, {"no_other_within": -1}, *RESAMPLING),
    ),
    "communication": (
        communication,
        {"speaker": "speaker_0", "listener": "listener_0", "goal": "goal"},
        ({"lag": 1.5}, *RESAMPLING),
    ),
    "similarity": (of_two_views, {}, ({"n_shuffles": 2.5}, {"n_bootstrap": 19}, {"seed": -1})),
    "similarity_matrix": (similarity_matrix, {"sites": SITE}, ({"n_shuffles": 0}, {"seed": "a"})),
    "concept_activation": (
        concept_activation,
        {"site": SITE, "concept": "goal", "value": "red"},
        ({"n_runs": 1}, {"n_shuffles": 5}, {"n_shuffles": -3}, {"seed": -1}),
    ),
    "embed": (embed, {"site": SITE}, ({"max_points": 10.5}, {"n_neighbors": 0}, {"seed": -1})),
    "roles": (roles, {}, ({"n_shuffles": 5}, {"max_roles": 1}, {"window": 0}, {"seed": -1})),
    "development": (development, {"label": "goal"}, ({"n_shuffles": 2.5}, {"seed": -1})),
    "attribute": (attribute, {"group": "listener"}, ({"seed": -1},)),
    "influence": (influence, {"through": "communication"}, ({"n_counterfactuals": 2.5}, {"seed": -1})),
    "label_features": (lambda r, **o: label_features(None, r, "goal", **o), {}, ({"max_rows": 0}, *RESAMPLING)),  # type: ignore[arg-type]
    "behaviour_preserved": (lambda r, **o: behaviour_preserved(None, r, **o), {}, ({"max_rows": 0}, {"seed": -1})),  # type: ignore[arg-type]
    "prune_dictionary": (
        lambda r, **o: prune_dictionary(None, r, **o),  # type: ignore[arg-type]
        {},
        ({"max_rows": 2.5}, {"l1": -1}, {"max_loss": float("nan")}, {"seed": -1}),
    ),
    "trace": (lambda r, **o: trace(r, (), **o), {}, ({"span": 1.5}, {"episodes": 1}, {"episodes": 257}, {"seed": -1})),
    "action_influence": (lambda r, **o: action_influence(r.run_path, "speaker_0", **o), {}, ({"horizon": 1.5},)),
}


@pytest.mark.parametrize("name", ANALYSES)
def test_a_number_out_of_range_is_named(recording: Recording, name: str) -> None:
    analysis, options, cases = ANALYSES[name]
    for case in cases:
        ((option, value),) = case.items()
        with pytest.raises(ConfigError, match=rf"(^|\.){option} must be .*; got {value!r}"):
            analysis(recording, **options, **case)


def test_of_an_attribution_over_time(team: Recording) -> None:
    for option, value in (("lookback", 2.5), ("n_steps", 0)):
        with pytest.raises(ConfigError, match=f"{option} must be .*; got {value}"):
            attribute_over_time(team, group="agent", **{option: value})  # type: ignore[arg-type]
