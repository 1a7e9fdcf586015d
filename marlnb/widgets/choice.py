"""Choice: an algorithm and its networks, as all groups, one group, or (networks) one agent has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as w

from marlnb.config import AlgorithmConfig, ModelConfig
from marlnb.registry import ALGORITHMS, MODELS
from marlnb.widgets.controls import Checkbox
from marlnb.widgets.form import PartForm


class Choice:
    """An algorithm, a network for the actor, and one for the critic.

    Attributes:
        box: the widget to show.
        algorithm: None where only networks are chosen.
    """

    def __init__(self, on_change: Callable[[], None], *, networks_only: bool = False) -> None:
        self.algorithm = None if networks_only else PartForm(ALGORITHMS, "mappo", on_change=on_change)
        self.model = PartForm(MODELS, "mlp", on_change=on_change)
        self.same_critic = Checkbox(value=True, description="the critic's network is of the same kind", indent=False)
        self.critic = PartForm(MODELS, "mlp", on_change=on_change)
        self._on_change = on_change
        self.same_critic.observe(self._switched, "value")
        self._critic_box = w.VBox([_heading("The critic's network"), self.critic.box])
        algorithm = [self.algorithm.box] if self.algorithm is not None else []
        network = _heading("The actor's network")
        self.box = w.VBox([*algorithm, network, self.model.box, self.same_critic, self._critic_box])
        self._show()

    @property
    def critic_config(self) -> ModelConfig | None:
        """None: of the actor's kind. Raises ConfigError: an option cannot be used."""
        found: ModelConfig | None = None if self.same_critic.value else self.critic.config
        return found

    def set(self, algorithm: AlgorithmConfig | None, model: ModelConfig, critic: ModelConfig | None) -> None:
        if self.algorithm is not None and algorithm is not None:
            self.algorithm.set(algorithm)
        self.model.set(model)
        self.same_critic.value = critic is None
        if critic is not None:
            self.critic.set(critic)
        self._show()

    def _switched(self, change: Any) -> None:
        self._show()
        self._on_change()

    def _show(self) -> None:
        self._critic_box.layout.display = "none" if self.same_critic.value else ""


def _heading(text: str) -> w.HTML:
    return w.HTML(f"<b>{text}</b>")
