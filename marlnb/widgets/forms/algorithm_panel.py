"""AlgorithmPanel: how each group learns and with which networks; only what fits the environment can be chosen."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import replace
from functools import partial
from typing import Any

from marlnb.config import AlgorithmConfig, ModelConfig
from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment
from marlnb.specs import EnvSpec
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.controls import Dropdown, Tab, button_for
from marlnb.widgets.core.panel import Panel
from marlnb.widgets.core.style import HTML, LABEL, Message, row, styled, table_html
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.algorithm_choice import AlgorithmChoice
from marlnb.widgets.forms.compatibility import (
    NetworkSummary,
    build_networks,
    incompatible_algorithms,
    incompatible_models,
)

ALL = "all groups"


class AlgorithmPanel(Panel):
    """Algorithms and networks of an experiment: one choice for all groups, and separate ones for groups or agents.

    Attributes:
        widget: what a notebook displays.
        choices: by group or agent; "all groups" for the common choice.
        networks: of the current choice; empty before they were built and if they cannot be built.
    """

    def __init__(self, experiment: Experiment, spec: EnvSpec | None = None) -> None:
        self._experiment, self._spec = experiment, spec
        self.networks: list[NetworkSummary] = []
        self._building = LatestOnly()
        self._is_updating = False
        common = AlgorithmChoice(experiment.algorithm, experiment.model, experiment.critic, on_change=self._changed)
        self.choices: dict[str, AlgorithmChoice] = {ALL: common}
        tooltip = "a group or an agent that differs from all groups"
        self._separate = Dropdown(description="separate choice", tooltip=tooltip, style=LABEL)
        button = partial(button_for, width="7em")
        tooltip = "choose its algorithm and networks separately"
        self._add = button(lambda: self._add_choice(self._separate.value), "Add", "plus", tooltip)
        self._remove = button(self._remove_choice, "Remove", "minus", "use the choice for all groups again")
        self._tabs, self._status, self._table = Tab([common.box], titles=[ALL]), Message(), HTML()
        line = row(self._separate, self._add, self._remove)
        self.widget = styled(self._tabs, line, self._status, self._table, name="marlnb-algorithm")
        self.set(experiment, spec)

    @property
    def parts(self) -> dict[str, Any]:
        """algorithm, model, critic, algorithms, models and critics, as `Experiment` takes them.

        Raises:
            ConfigError: an option is not valid, or an algorithm is not compatible.
        """
        common = self.choices[ALL]
        assert common.algorithm is not None
        algorithm, model = common.algorithm.config, common.model.config
        separate = {name: choice for name, choice in self.choices.items() if name != ALL}
        algorithms = {name: choice.algorithm.config for name, choice in separate.items() if choice.algorithm}
        models = {name: choice.model.config for name, choice in separate.items()}
        critics = {name: choice.critic_config or models[name] for name, choice in separate.items()}
        given = self._experiment
        shown = replace(given, model=model, critic=common.critic_config, models=models, critics=critics)
        return {
            "algorithm": algorithm,
            "model": model,
            "critic": shown.critic,
            "algorithms": {
                name: config for name, config in algorithms.items() if name in given.algorithms or config != algorithm
            },
            "models": {
                name: config
                for name, config in models.items()
                if name in given.models or config != models.get(self.group_of(name), model)
            },
            "critics": {
                name: config
                for name, config in critics.items()
                if config != self._inherited_critic(shown, name)
                or (name in given.critics and not separate[name].same_critic.value)
            },
        }

    @with_ui_lock
    def set(self, experiment: Experiment, spec: EnvSpec | None = None) -> None:
        """Shows the algorithms and networks of an experiment.

        Args:
            spec: of its environment; None if it is not known yet.
        """
        self._experiment, self._spec, self._is_updating = experiment, spec, True
        try:
            separate = {**experiment.algorithms, **experiment.models, **experiment.critics}
            self.choices = {name: choice for name, choice in self.choices.items() if name in (ALL, *separate)}
            self.choices[ALL].set(experiment.algorithm, experiment.model, experiment.critic)
            for name in separate:
                model = experiment.models.get(name, experiment.actor_of(self.group_of(name)))
                inherited = self._inherited_critic(experiment, name)
                critic = experiment.critics.get(name, inherited)
                is_redundant = name in experiment.critics and critic == inherited  # it stays as it was given
                is_same = critic == model and not is_redundant
                self._set_choice(name, experiment.algorithm_of(name), model, None if is_same else critic)
        finally:
            self._is_updating = False
        self._lay_out()
        self._changed()

    @with_ui_lock
    def set_env(self, experiment: Experiment, spec: EnvSpec | None) -> None:
        """Adapts to another environment: incompatible parts become unavailable, choices for missing groups vanish."""
        self._experiment, self._spec = experiment, spec
        if spec is not None:
            for name in [name for name in self.choices if name not in (ALL, *spec.group_names, *spec.agents)]:
                del self.choices[name]
        self._lay_out()
        self._changed()

    def group_of(self, name: str) -> str:
        """The group of an agent; empty for a group."""
        if self._is_group(name):
            return ""
        groups = {} if self._spec is None else {group.name: group.agents for group in self._spec.groups}
        groups = groups or dict(self._experiment.groups)
        return next((group for group, agents in groups.items() if name in agents), name.rpartition("_")[0])

    def _inherited_critic(self, experiment: Experiment, name: str) -> ModelConfig:
        """The critic's network of a group or an agent without a separate one."""
        if group := self.group_of(name):
            return experiment.critic_of(group)
        return experiment.critic or experiment.actor_of(name)

    def _set_choice(
        self, name: str, algorithm: AlgorithmConfig, model: ModelConfig, critic: ModelConfig | None
    ) -> None:
        for_group = algorithm if self._is_group(name) else None
        choice = self.choices.get(name)
        if choice is not None and (choice.algorithm is None) == (for_group is None):
            choice.set(for_group, model, critic)
        else:
            self.choices[name] = AlgorithmChoice(for_group, model, critic, on_change=self._changed)

    def _is_group(self, name: str) -> bool:
        """Whether a name is a group's. Without a spec, `<group>_<index>` is taken for the name of an agent."""
        if self._spec is not None:
            return name in self._spec.group_names
        return name in self._experiment.algorithms or not name.rpartition("_")[2].isdigit()

    @with_ui_lock
    def _add_choice(self, name: str | None) -> None:
        if name is None:
            return
        common = self.choices[ALL]
        above = self.choices.get(self.group_of(name), common)
        try:
            assert common.algorithm is not None
            self._set_choice(name, common.algorithm.config, above.model.config, above.critic_config)
        except MarlnbError as error:
            self._status.show_problem(error)
            return
        self._lay_out()
        self._tabs.selected_index = list(self.choices).index(name)
        self._changed()

    @with_ui_lock
    def _remove_choice(self) -> None:
        name = list(self.choices)[self._tabs.selected_index or 0]
        if name != ALL:
            del self.choices[name]
            self._lay_out()
            self._changed()

    def _lay_out(self) -> None:
        """Shows the choices as tabs. The open one stays open; if it vanished, the first one opens."""
        titles, before = list(self.choices), self._tabs.titles[self._tabs.selected_index or 0]
        with self._tabs.hold_sync():
            self._tabs.children = [choice.box for choice in self.choices.values()]
            self._tabs.titles = titles
            self._tabs.selected_index = titles.index(before) if before in titles else 0
        names = [] if self._spec is None else [*self._spec.group_names, *self._spec.agents]
        self._separate.options = [name for name in names if name not in self.choices]
        self._separate.value = next(iter(self._separate.options), None)
        self._add.disabled = not self._separate.options
        self._remove.disabled = len(self.choices) == 1

    def _changed(self) -> None:
        if self._is_updating:
            return
        self._set_unavailable()
        self.networks = []
        try:
            experiment = replace(self._experiment, **self.parts)
        except MarlnbError as error:
            self._building.cancel()
            self._fail(error)
        else:
            self._experiment = experiment
            spec = self._spec
            if spec is None:
                self._status.show_note("the environment is not known yet")
            else:
                self._building.request(lambda: build_networks(experiment, spec), self._show, self._fail)
        self._notify()

    def _set_unavailable(self) -> None:
        """In each tab, makes the parts unavailable that are not compatible with its groups; none without a spec.

        The forms are read, whatever was unavailable before: that may be outdated.
        """
        spec = self._spec
        for name, choice in self.choices.items():
            groups = [] if spec is None else [g for g in spec.groups if name in (ALL, g.name, *g.agents)]
            if name == ALL:
                groups = [group for group in groups if group.name not in self.choices] or groups
            try:
                actor = choice.model.form.config
                critic = actor if choice.same_critic.value else choice.critic.form.config
            except MarlnbError:
                continue
            if choice.algorithm is not None:
                reasons = (incompatible_algorithms(spec, group, actor, critic) for group in groups if spec is not None)
                choice.algorithm.set_unavailable(ChainMap(*reasons))
            try:
                part = choice.algorithm or self.choices[ALL].algorithm
                assert part is not None
                algorithm = part.form.config
            except MarlnbError:
                continue
            choice.model.set_unavailable(ChainMap(*(incompatible_models(group, algorithm) for group in groups)))

    def _show(self, networks: list[NetworkSummary]) -> None:
        self.networks = networks
        total = sum(sum(network.parameters.values()) for network in networks)
        policies = "1 policy" if len(networks) == 1 else f"{len(networks)} policies"
        self._status.show_note(f"{total:,} parameters in {policies}")
        rows = []
        for network in networks:
            parameters = ", ".join(f"{part} {count:,}" for part, count in network.parameters.items())
            sites = ", ".join(f"{name} ({agents} x {units})" for name, agents, units, _ in network.sites)
            rows.append([network.group, parameters, sites])
        self._table.value = table_html(["group", "parameters", "sites (agents x units)"], rows)

    def _fail(self, error: Exception) -> None:
        self._status.show_problem(error)
        self._table.value = ""
