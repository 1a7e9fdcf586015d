"""What is sent to the page about an episode: plain data, and arrays as bytes. Units are sent as one byte a step."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage

from marlnb.plots.canvas import agent_colour
from marlnb.widgets.microscope.decoded_concepts import Concept
from marlnb.widgets.microscope.episode_view import EpisodeView, GroupView, choice_names

MAX_UNIT_BYTES = 6_000_000  # of layers that are sent before the user chooses them
ORDERS = {
    "raw": "as in the network",
    "peak": "by the step of their peak",
    "variance": "by variance, largest first",
    "cluster": "similar ones together",
}
Data = dict[str, Any]


def side_payload(view: EpisodeView, title: str, layers: Sequence[str]) -> Data:
    """An episode without frames, attributions and concepts, with the units of these layers."""
    return {
        "title": title,
        "episode": view.episode,
        "steps": len(view.t),
        "t": float_bytes(view.t),
        "agents": [agent for group in view.groups for agent in _agents(view, group)],
        "units": {layer: layer_payload(view, layer) for layer in layers},
        "labels": [
            {**vars(label), "values": float_bytes(label.values.reshape(len(label.values), -1))} for label in view.labels
        ],
    }


def initial_layers(view: EpisodeView, layer: str) -> list[str]:
    """The layers that are sent first: the one that is shown, and others as long as they are small."""
    layers, size = ([layer] if layer in view.layers else []), 0
    for other in view.layers:
        sites = [site for site in view.sites if site.split("/", 1)[1] == other]
        size += sum(len(view.t) * prod(view.recording[site].shape[1:]) for site in sites)
        if other != layer and size < MAX_UNIT_BYTES:
            layers.append(other)
    return layers


def layer_payload(view: EpisodeView, layer: str) -> Data:
    """By agent: `quantised` uint8 `[unit, time]` between each unit's `low` and `high`, and the orders of units."""
    data = {}
    for agent in view.agents:
        site = view.site_of(agent, layer)
        if site is not None:
            x = view.units_of(agent, site)
            quantised, low, high = quantise(x)
            orders = {name: order.tobytes() for name, order in unit_orders(x).items()}
            limits = {"low": float_bytes(low), "high": float_bytes(high)}
            data[agent] = {"n": x.shape[1], "quantised": quantised.T.tobytes(), **limits, "orders": orders}
    return data


def quantise(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantises `[time, unit]` to uint8 between each unit's minimum and maximum; NaN counts as 0.

    The error is at most half of 1/255 of the unit's range.

    Returns:
        The quantised array, the minima and the maxima `[unit]`.
    """
    x = np.nan_to_num(np.asarray(x, dtype=np.float32))
    low, high = x.min(axis=0), x.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    return np.round((x - low) / span * 255).astype(np.uint8), low, high


def unit_orders(x: np.ndarray) -> dict[str, np.ndarray]:
    """Every order in which `[time, unit]` activations can be drawn, as int32 permutations: row -> unit.

    "cluster" are the leaves of Ward's tree over the units' courses, each standardised over time; constant units count
    as flat.
    """
    x = np.nan_to_num(np.asarray(x, dtype=np.float64))
    n = x.shape[1]
    clustered = np.arange(n)
    if n > 2 and len(x) > 1:
        spread = x.std(axis=0)
        courses = (x - x.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0)
        clustered = leaves_list(linkage(courses.T, method="ward"))
    orders = {
        "raw": np.arange(n),
        "peak": np.argsort(x.argmax(axis=0), kind="stable"),
        "variance": np.argsort(-x.var(axis=0), kind="stable"),
        "cluster": clustered,
    }
    return {name: order.astype(np.int32) for name, order in orders.items()}


def concepts_payload(concepts: Sequence[Concept]) -> list[Data]:
    return [
        {
            **vars(concept),
            "classes": list(concept.classes),
            "decoded": float_bytes(concept.decoded),
            "truth": float_bytes(concept.truth),
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
            "choice_names": list(choice_names(group.spec.action)) if group.kind != "none" else [],
            "kind": group.kind,
            "choices": float_bytes(group.choices[:, index]),
            "taken": _taken(group, index),
            "reward": float_bytes(group.reward[:, index]),
            "value": None if group.value is None else float_bytes(group.value[:, index]),
            "acting": group.acting[:, index].astype(np.uint8).tobytes(),
        }
        for index, agent in enumerate(group.agents)
    ]


def _taken(group: GroupView, agent_index: int) -> bytes | None:
    """`[time, component]` indices among the choices, float32; None for a continuous action."""
    if group.spec.action.kind == "continuous":
        return None
    action = group.action[:, agent_index].reshape(len(group.action), -1)
    return float_bytes(action + np.concatenate([[0], np.cumsum(group.spec.action.n)[:-1]]))


def float_bytes(values: np.ndarray) -> bytes:
    """Little-endian float32."""
    return np.ascontiguousarray(values, dtype="<f4").tobytes()
