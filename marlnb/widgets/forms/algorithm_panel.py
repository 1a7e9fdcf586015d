"""AlgorithmPanel: how each group learns and with which networks; only what fits the environment can be chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ipywidgets as w

from marlnb.config import AlgorithmConfig, ModelConfig
from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment
from marlnb.specs import EnvSpec
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.controls import Dropdown, Tab, button_for
from marlnb.widgets.core.style import LABEL, note_html, problem_html, styled, table_html
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.forms.algorithm_choice import Choice
from marlnb.widgets.forms.compatibility import Network, build_networks, incompatible_algorithms, incompatible_models

ALL = "all groups"
WIDTH = "7em"  # of a button


class AlgorithmPanel:
    """Algorithms and networks of an experiment, one for all groups or one each, networks for single agents as well.

    Attributes:
        widget: what a notebook displays.
        networks: what the choice comes to, once it was built; empty before, and where it cannot be built.
    """

    def __init__(self, experiment: Experiment, spec: EnvSpec | None = None) -> None:
        self._experiment, self._spec = experiment, spec
        self.networks: list[Network] = []
        self._listeners: list[Callable[[], None]] = []
        self._counting = LatestOnly()
        self._quiet = False
        every = Choice(experiment.algorithm, experiment.model, experiment.critic, on_change=self._changed)
        self.choices: dict[str, Choice] = {ALL: every}
        self._own = Dropdown(
            description="of its own for", tooltip="a group or an agent that has a choice of its own", style=LABEL
        )
        self._add = button_for(
            lambda: self._give(self._own.value),
            "Add",
            "plus",
            "give it an algorithm and networks of its own",
            width=WIDTH,
        )
        self._remove = button_for(
            lambda: self._take(self._tabs_name()), "Remove", "minus", "it does as all groups do again", width=WIDTH
        )
        self._tabs, self._status, self._table = Tab([every.box], titles=[ALL]), w.HTML(), w.HTML()
        line = w.HBox([self._own, self._add, self._remove], layout=w.Layout(flex_flow="row wrap"))
        self.widget = styled(self._tabs, line, self._status, self._table, name="marlnb-algorithm")
        self.set(experiment, spec)

    @property
    def parts(self) -> dict[str, Any]:
        """algorithm, model, critic, algorithms, models, critics as `Experiment` takes them.

        Raises:
            ConfigError: an option cannot be used, or an algorithm does not fit.
        """
        every = self.choices[ALL]
        assert every.algorithm is not None
        algorithm, model = every.algorithm.config, every.model.config
        own = {name: choice for name, choice in self.choices.items() if name != ALL}
        algorithms = {name: one.algorithm.config for name, one in own.items() if one.algorithm is not None}
        models = {name: one.model.config for name, one in own.items()}
        return {
            "algorithm": algorithm,
            "model": model,
            "critic": every.critic_config,
            "algorithms": {name: config for name, config in algorithms.items() if config != algorithm},
            "models": {name: config for name, config in models.items() if config != model},
            "critics": {name: one.critic.config for name, one in own.items() if not one.same_critic.value},
        }

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each change."""
        self._listeners.append(listener)

    @with_ui_lock
    def set(self, experiment: Experiment, spec: EnvSpec | None = None) -> None:
        """Shows the algorithms and networks of an experiment, whose environment has this spec, where that is known."""
        self._experiment, self._spec, self._quiet = experiment, spec, True
        try:
            self.choices = {ALL: self.choices[ALL]}
            self.choices[ALL].set(experiment.algorithm, experiment.model, experiment.critic)
            own = {**experiment.algorithms, **experiment.models, **experiment.critics}
            for name in own:
                self._give_choice(
                    name, experiment.algorithm_of(name), experiment.actor_of(name), experiment.critics.get(name)
                )
        finally:
            self._quiet = False
        self._lay_out()
        self._changed()

    @with_ui_lock
    def look_at(self, experiment: Experiment, spec: EnvSpec | None) -> None:
        """Another environment: what does not fit it is taken away with the reason; groups that it lacks are dropped."""
        self._experiment, self._spec = experiment, spec
        if spec is not None:
            for name in [name for name in self.choices if name not in (ALL, *spec.group_names, *spec.agents)]:
                del self.choices[name]
        self._lay_out()
        self._changed()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return self.widget._repr_mimebundle_(**options)  # type: ignore[no-any-return]

    def _give_choice(
        self, name: str, algorithm: AlgorithmConfig, model: ModelConfig, critic: ModelConfig | None
    ) -> None:
        if name in self.choices:
            self.choices[name].set(algorithm, model, critic)
        else:
            own = algorithm if self._is_group(name) else None
            self.choices[name] = Choice(own, model, critic, on_change=self._changed)

    def _is_group(self, name: str) -> bool:
        """Whether a name is a group's; by how agents are named, `<group>_<index>`, where the spec is not yet known."""
        if self._spec is not None:
            return name in self._spec.group_names
        return name in self._experiment.algorithms or not name.rpartition("_")[2].isdigit()

    @with_ui_lock
    def _give(self, name: str | None) -> None:
        if name is None:
            return
        every = self.choices[ALL]
        try:
            assert every.algorithm is not None
            self._give_choice(name, every.algorithm.config, every.model.config, every.critic_config)
        except MarlnbError as error:
            self._status.value = problem_html(str(error))
            return
        self._lay_out()
        self._tabs.selected_index = list(self.choices).index(name)
        self._changed()

    @with_ui_lock
    def _take(self, name: str) -> None:
        if name != ALL:
            del self.choices[name]
            self._lay_out()
            self._changed()

    def _tabs_name(self) -> str:
        return list(self.choices)[self._tabs.selected_index or 0]

    def _lay_out(self) -> None:
        self._tabs.children = [choice.box for choice in self.choices.values()]
        self._tabs.titles = list(self.choices)
        left = [] if self._spec is None else [*self._spec.group_names, *self._spec.agents]
        self._own.options = [name for name in left if name not in self.choices]
        self._own.value = next(iter(self._own.options), None)
        self._add.disabled = not self._own.options
        self._remove.disabled = len(self.choices) == 1

    def _changed(self) -> None:
        if self._quiet:
            return
        self._refuse()
        self.networks = []
        try:
            experiment = replace(self._experiment, **self.parts)
        except MarlnbError as error:
            self._counting.forget()
            self._status.value, self._table.value = problem_html(str(error)), ""
        else:
            self._experiment = experiment
            spec = self._spec
            if spec is None:
                self._status.value = note_html("the environment is not known yet")
            else:
                self._counting.ask(lambda: build_networks(experiment, spec), self._show, self._fail)
        for listener in self._listeners:
            listener()

    def _refuse(self) -> None:
        """Takes away, in each tab, what the groups that it stands for cannot do."""
        if self._spec is None:
            return
        for name, choice in self.choices.items():
            groups = [group for group in self._spec.groups if name in (ALL, group.name, *group.agents)]
            if name == ALL:
                groups = [group for group in groups if group.name not in self.choices] or groups
            try:
                actor = choice.model.config
                critic = choice.critic_config or actor
            except MarlnbError:
                continue
            if choice.algorithm is not None:
                reasons: dict[str, str] = {}
                for group in groups:
                    reasons = {**incompatible_algorithms(self._spec, group, actor, critic), **reasons}
                choice.algorithm.refuse(reasons)
            algorithm = self._algorithm_of(name)
            if algorithm is not None:
                found: Mapping[str, str] = {}
                for group in groups:
                    found = {**incompatible_models(group, algorithm), **found}
                choice.model.refuse(found)

    def _algorithm_of(self, name: str) -> AlgorithmConfig | None:
        try:
            part = self.choices[name].algorithm or self.choices[ALL].algorithm
            assert part is not None
            found: AlgorithmConfig = part.form.config
            return found
        except MarlnbError:
            return None

    def _show(self, networks: list[Network]) -> None:
        self.networks = networks
        total = sum(sum(network.parameters.values()) for network in networks)
        self._status.value = note_html(f"{total:,} parameters in {len(networks)} policies")
        rows = [
            [
                network.group,
                _counts(network),
                _sites(network),
            ]
            for network in networks
        ]
        self._table.value = table_html(["group", "parameters", "sites (agents x units)"], rows)

    def _fail(self, error: Exception) -> None:
        self._status.value = problem_html(str(error))
        self._table.value = ""


def _counts(network: Network) -> str:
    return ", ".join(f"{part} {count:,}" for part, count in network.parameters.items())


def _sites(network: Network) -> str:
    return ", ".join(f"{name} ({agents} x {units})" for name, agents, units, _ in network.sites)
