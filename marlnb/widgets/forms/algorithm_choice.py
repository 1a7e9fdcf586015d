"""AlgorithmChoice: an algorithm and its networks for all groups, for one group, or (networks only) for one agent."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import ipywidgets as w

from marlnb.config import ALGORITHMS, MODELS, AlgorithmConfig, ModelConfig
from marlnb.widgets.core.controls import Checkbox
from marlnb.widgets.forms.part_form import PartForm


class AlgorithmChoice:
    """An algorithm, a network for the actor and one for the critic.

    Attributes:
        box: the widget to display.
        algorithm: None if only networks are chosen.
        model: of the actor.
        same_critic: the checkbox for a critic of the actor's kind.
    """

    def __init__(
        self,
        algorithm: AlgorithmConfig | None,
        model: ModelConfig,
        critic: ModelConfig | None,
        *,
        on_change: Callable[[], None],
    ) -> None:
        """
        Args:
            algorithm: None: only networks are chosen.
            critic: None: of the actor's kind.
            on_change: called under UI_LOCK after each change.
        """
        self._on_change, self._first_critic = on_change, critic
        self.algorithm = None if algorithm is None else PartForm(ALGORITHMS, algorithm, on_change=on_change)
        self.model = PartForm(MODELS, model, label="actor's network", on_change=on_change)
        description = "the critic's network is of the same kind"
        self.same_critic = Checkbox(value=critic is None, description=description, indent=False)
        self.same_critic.observe(self._same_critic_changed, "value")
        self.box = w.VBox(self._children)

    @cached_property
    def critic(self) -> PartForm:
        """Made on first use: most critics are of their actor's kind."""
        return PartForm(MODELS, self._first_critic or "mlp", label="critic's network", on_change=self._on_change)

    @property
    def critic_config(self) -> ModelConfig | None:
        """None: of the actor's kind. Raises ConfigError: an option is not valid."""
        config: ModelConfig | None = None if self.same_critic.value else self.critic.config
        return config

    def set(self, algorithm: AlgorithmConfig | None, model: ModelConfig, critic: ModelConfig | None) -> None:
        if self.algorithm is not None and algorithm is not None:
            self.algorithm.set(algorithm)
        self.model.set(model)
        if critic is not None:
            self.critic.set(critic)
        self.same_critic.value = critic is None

    @property
    def _children(self) -> list[w.Widget]:
        algorithm = [] if self.algorithm is None else [self.algorithm.box]
        critic = [] if self.same_critic.value else [self.critic.box]
        return [*algorithm, self.model.box, self.same_critic, *critic]

    def _same_critic_changed(self, change: Any) -> None:
        self.box.children = self._children
        self._on_change()
