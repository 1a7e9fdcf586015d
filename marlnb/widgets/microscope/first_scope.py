"""The scope of an episode as it is opened: which step, layer, order of units and agents it shows at first."""

from __future__ import annotations

from collections.abc import Sequence

from marlnb.errors import RecordingError, unknown
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.scope import Scope
from marlnb.widgets.microscope.sides import sent_layers, side_of
from marlnb.widgets.microscope.unit_orders import ORDERS


def first_scope(view: EpisodeView, title: str, t: int, layer: str | None, order: str, agents: Sequence[str]) -> Scope:
    """Args: layer: None: the actors' first hidden one, where it is recorded.

    Raises:
        RecordingError: no such layer, order or agent.
    """
    layers = view.layers
    chosen = layer or next((one for one in layers if one.endswith("hidden_1")), layers[0] if layers else "")
    if layers and chosen not in layers:
        raise RecordingError(unknown("layer", chosen, layers))
    if order not in ORDERS:
        raise RecordingError(unknown("order of units", order, ORDERS))
    for agent in agents:
        view.group_of(agent)
    return Scope(
        sides=[side_of(view, title, sent_layers(view, chosen))],
        layers=layers,
        orders=ORDERS,
        layer=chosen,
        order=order,
        agents=list(agents),
        t=view.place(t),
    )
