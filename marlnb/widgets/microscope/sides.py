"""What is sent to the browser of one episode: plain data, and arrays as bytes. Units travel as one byte a step."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from marlnb.analysis.attribution.result import Attribution
from marlnb.plots.canvas import agent_colour
from marlnb.widgets.microscope.episode_view import EpisodeView, GroupView
from marlnb.widgets.microscope.explanation import Explanation
from marlnb.widgets.microscope.objects import Spoken
from marlnb.widgets.microscope.readings import Concept
from marlnb.widgets.microscope.unit_orders import unit_orders

MOST_BYTES = 6_000_000  # of units that are sent before anybody asks for their layer
MOST_BARS = 40  # features of an agent that are sent, those that matter most first
Data = dict[str, Any]


def side_of(view: EpisodeView, title: str, layers: Sequence[str]) -> Data:
    """An episode but for its pictures, attributions and concepts, with the units of these layers."""
    return {
        "title": title,
        "episode": view.episode,
        "steps": len(view.t),
        "t": _floats(view.t),
        "agents": [agent for group in view.groups for agent in _agents(view, group)],
        "units": {layer: units_of_layer(view, layer) for layer in layers},
        "labels": [
            {
                "name": label.name,
                "agents": list(label.agents),
                "classes": list(label.classes),
                "values": _floats(label.values.reshape(len(label.values), -1)),
            }
            for label in view.labels
        ],
    }


def sent_layers(view: EpisodeView, layer: str) -> list[str]:
    """The layer that is shown, and the others as far as their units are few enough to be sent unasked."""
    chosen, size = ([layer] if layer in view.layers else []), 0
    for other in view.layers:
        sites = [site for site in view.sites if site.split("/", 1)[1] == other]
        size += sum(len(view.t) * prod(view.recording[site].shape[1:]) for site in sites)
        if other != layer and size < MOST_BYTES:
            chosen.append(other)
    return chosen


def units_of_layer(view: EpisodeView, layer: str) -> Data:
    """By agent: `quantised` uint8 `[unit, time]` between each unit's `low` and `high`, and the orders."""
    found = {}
    for agent in view.agents:
        site = view.site_of(agent, layer)
        if site is not None:
            x = view.units_of(agent, site)
            bytes_, low, high = quantise(x)
            orders = {name: order.tobytes() for name, order in unit_orders(x).items()}
            found[agent] = {
                "n": x.shape[1], "quantised": bytes_.T.tobytes(), "low": _floats(low), "high": _floats(high),
                "orders": orders,
            }  # fmt: skip
    return found


def quantise(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`[time, unit]` as uint8 between each unit's lowest and highest value, and those; no number counts as 0.

    A value is back within half a 255th of its unit's range.
    """
    x = np.nan_to_num(np.asarray(x, dtype=np.float32))
    low, high = x.min(axis=0), x.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    return np.round((x - low) / span * 255).astype(np.uint8), low, high


def attribution_of(explanation: Explanation, spoken: Spoken | None = None) -> Data:
    """By agent: names and values `[time, feature]` of the features that matter most, and the objects they speak of.

    Of a group of which a single step was explained, values are of that step, and `at` is its place.
    """
    found: Data = {}
    for group, attribution in explanation.found.items():
        for place, agent in enumerate(attribution.agents):
            found[agent] = {**_bars(attribution, place, agent, spoken or {}), "at": explanation.at.get(group)}
    return {"to": explanation.to, "method": explanation.method, "agents": found, "refused": dict(explanation.refused)}


def _bars(attribution: Attribution, place: int, agent: str, spoken: Spoken) -> Data:
    values = np.nan_to_num(np.asarray(attribution.values[:, place]))
    owners = attribution.feature_agents or (agent,) * values.shape[1]
    order = np.argsort(-np.abs(values).mean(axis=0), kind="stable")[:MOST_BARS]
    names = attribution.feature_names
    objects = [spoken.get(owner, {}).get(name) for owner, name in zip(owners, names)]
    shown = [name if owner == agent else f"{owner}: {name}" for name, owner in zip(names, owners)]
    known = sorted({one for one in objects if one is not None})
    by_object = np.stack([
        np.abs(values[:, [other == one for other in objects]]).sum(axis=1) for one in known
    ], axis=1) if known else np.zeros((len(values), 0))  # fmt: skip
    return {
        "names": [shown[k] for k in order],
        "left_out": values.shape[1] - len(order),
        "values": _floats(values[:, order]),
        "objects": known,
        "by_object": _floats(by_object),
        "target": attribution.target,
        "units": attribution.units,
        "warnings": list(attribution.warnings),
    }


def concepts_data(concepts: Sequence[Concept]) -> list[Data]:
    return [
        {
            "name": concept.name,
            "agent": concept.agent,
            "classes": list(concept.classes),
            "said": _floats(concept.said),
            "truth": _floats(concept.truth),
            "note": concept.note,
        }
        for concept in concepts
    ]


def _agents(view: EpisodeView, group: GroupView) -> list[Data]:
    return [
        {
            "name": agent,
            "group": group.name,
            "colour": agent_colour(agent, view.recording.spec.agents),
            "return": view.returns[agent],
            "choice_names": list(group.choice_names) if group.kind != "none" else [],
            "kind": group.kind,
            "choices": _floats(group.choices[:, place]),
            "taken": _taken(group, place),
            "reward": _floats(group.reward[:, place]),
            "value": None if group.value is None else _floats(group.value[:, place]),
            "acting": group.acting[:, place].astype(np.uint8).tobytes(),
        }
        for place, agent in enumerate(group.agents)
    ]


def _taken(group: GroupView, place: int) -> bytes | None:
    """`[time, component]` places among the choices, float32; None for a continuous action."""
    if group.spec.action.kind == "continuous":
        return None
    action = group.action[:, place].reshape(len(group.action), -1)
    return _floats(action + np.concatenate([[0], np.cumsum(group.spec.action.n)[:-1]]))


def _floats(values: np.ndarray) -> bytes:
    return np.ascontiguousarray(values, dtype="<f4").tobytes()
