"""The training cell without a browser: choices become an experiment, code and a command; training makes a run."""

from __future__ import annotations

import asyncio
import html
import re
import shlex
import threading
from pathlib import Path

import pytest

from marlnb.composition.overrides import as_command
from marlnb.errors import ConfigError, RunError
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from marlnb.widgets.runs.training_panel import TrainingPanel
from tests.widgets.trained import until

SMALL = ("env=mpe/simple_tag", "algorithm=ippo", "n_envs=4", "rollout_steps=10", "frames=400", "threads=1")


def _text(widget: object) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", widget.value))  # type: ignore[attr-defined]


@pytest.fixture
def panel() -> TrainingPanel:
    made = TrainingPanel(Experiment.compose(*SMALL))
    until(lambda: made.environment.spec is not None and made.algorithm.networks)
    return made


def test_a_form_shows_the_experiment_that_it_was_given() -> None:
    asked = [
        *("env=mpe/simple_tag", "env.num_good=2", "algorithms.adversary=iql", "models.agent=gru", "models.agent_0=mlp"),
        *("models.agent_0.hidden=[8]", "critic=gru", "frames=5000", "seed=3", "loggers=[tensorboard]", "n_envs=8"),
    ]
    experiment = Experiment.compose(*asked)
    panel = TrainingPanel(experiment)
    assert panel.experiment == experiment
    until(lambda: panel.environment.spec is not None)
    assert panel.experiment == experiment  # unchanged after the environment was built
    command = shlex.split(_text(panel._as_command).replace("\\\n", ""))
    assert Experiment.compose(*command[2:]) == experiment
    made: dict[str, object] = {}
    exec(_text(panel._as_code).rpartition("\n")[0], made)
    assert made["experiment"] == experiment


def test_what_is_clicked_changes_the_experiment(panel: TrainingPanel) -> None:
    panel.algorithm._add_choice("agent")
    choice = panel.algorithm.choices["agent"]
    assert choice.algorithm is not None
    choice.algorithm._name.value = "a2c"
    panel.environment.part.form.fields["num_good"].enter("3")
    panel.length.fields["seed"].enter("9")
    until(lambda: panel.environment.spec is not None)
    expected = Experiment.compose(*SMALL, "algorithms.agent=a2c", "env.num_good=3", "seed=9")
    assert panel.experiment == expected
    panel.algorithm._tabs.selected_index = 1
    panel.algorithm._remove.click()
    assert panel.experiment.algorithms == {}


def test_a_league_or_a_population_is_chosen_in_the_form() -> None:
    game = ("env=game/disc", "algorithm=ippo", "frames=4096")
    panel = TrainingPanel(Experiment.compose(*game))
    assert panel.experiment.league is None
    league = panel.form.league
    league.is_on.value = True
    league.part.form.parts["main"].fields["self_play"].enter("0.5")
    expected = Experiment.compose(*game, "league=alphastar", "league.main.self_play=0.5")
    assert panel.experiment == expected and "league.main.self_play=0.5" in _text(panel._as_command)
    panel.form.evolution.is_on.value = True
    assert "a training run has a league= or an evolution=, not both" in _text(panel._problem)
    league.is_on.value = False
    assert panel.experiment == Experiment.compose(*game, "evolution=tournament")
    panel.form.set(expected)
    assert panel.experiment == expected and not panel.form.evolution.is_on.value


def test_another_environment_or_algorithm_brings_its_tuned_settings_and_keeps_what_was_set() -> None:
    spread = ("env=mpe/simple_spread", "frames=4_000_000")
    panel = TrainingPanel(Experiment.compose(*spread, "algorithm=ippo", "algorithm.clip=0.3"))
    algorithm = panel.algorithm.choices["all groups"].algorithm
    assert algorithm is not None
    algorithm._name.value = "maddpg"
    assert panel.experiment == Experiment.compose(*spread, "algorithm=maddpg")
    assert "tuned for mpe/simple_spread, found by" in _text(panel.form.tuned._text)
    panel.form.tuned._choice.value = False
    assert panel.experiment == Experiment.compose(*spread, "algorithm=maddpg", "tuned=false")
    panel.form.tuned._choice.value = True
    panel.environment.part._name.value = "pettingzoo/multiwalker"
    walker = Experiment.compose("env=pettingzoo/multiwalker", "algorithm=maddpg", "frames=4_000_000")
    until(lambda: panel.environment.spec is not None and panel.form._shown == walker)
    assert panel.experiment == walker and panel.environment.n_envs == walker.n_envs


def test_another_network_restarts_the_values_that_depend_on_it() -> None:
    spread = ("env=mpe/simple_spread", "algorithm=mappo", "frames=5000")
    panel = TrainingPanel(Experiment.compose(*spread, "algorithm.clip=0.3"))
    panel.algorithm.choices["all groups"].model._name.value = "gru"
    assert panel.experiment == Experiment.compose(*spread, "algorithm.clip=0.3", "model=gru")
    assert panel.experiment.algorithm.sequence_length == panel.experiment.rollout_steps == 25
    assert not panel._start_button.disabled
    panel.length.fields["rollout_steps"].enter("32")
    assert "sequence_length=25 must divide rollout_steps=32" in _text(panel._problem) and panel._start_button.disabled


def test_options_that_were_entered_return_with_their_part() -> None:
    spread = ("env=mpe/simple_spread", "algorithm=mappo", "frames=5000")
    panel = TrainingPanel(Experiment.compose(*spread))
    common = panel.algorithm.choices["all groups"]
    assert common.algorithm is not None
    entered = ((common.model, "gru", "hidden", "128, 128"), (common.algorithm, "iql", "lr", "0.1"))
    for part, name, option, value in entered:
        chosen = part.name
        part.form.fields[option].enter(value)
        part._name.value = name
        part._name.value = chosen
    assert panel.experiment == Experiment.compose(*spread, "model.hidden=[128,128]", "algorithm.lr=0.1")
    panel.set(Experiment.compose(*spread))  # which knows nothing of the earlier one
    common.model._name.value = "gru"
    common.model._name.value = "mlp"
    assert panel.experiment == Experiment.compose(*spread)


@pytest.mark.parametrize(
    ("shown", "loaded"),
    [
        ("env=mpe/simple_spread algorithm=iddpg", "env=mpe/simple_spread algorithm=ippo model=gru rollout_steps=64"),
        ("env=mpe/simple_spread algorithm=ippo", "env=pettingzoo/pistonball algorithm=ippo"),  # reads images
    ],
)
def test_what_was_shown_before_does_not_lock_the_form(shown: str, loaded: str) -> None:
    panel = TrainingPanel(Experiment.compose(*shown.split()))
    until(lambda: panel.environment.spec is not None and panel.algorithm.networks)
    panel.load(loaded)
    for _ in range(2):  # before and after its environment was built
        assert panel.experiment == Experiment.compose(*loaded.split())
        assert not panel._problem.value and not panel._start_button.disabled
        until(lambda: panel.environment.spec is not None and panel.algorithm.networks)


def test_an_option_of_a_separate_choice_stays(panel: TrainingPanel) -> None:
    panel.algorithm._add_choice("agent")
    choice = panel.algorithm.choices["agent"]
    assert choice.algorithm is not None
    choice.algorithm.form.fields["lr"].enter("0.5")
    choice.model.form.fields["hidden"].enter("8")
    assert panel.experiment.algorithms["agent"].lr == 0.5 and panel.experiment.models["agent"].hidden == (8,)


def test_a_choice_in_a_tab_leaves_it_open_and_the_tabs_in_their_order(panel: TrainingPanel) -> None:
    algorithm = panel.algorithm
    algorithm._add_choice("agent")
    separate = algorithm.choices["agent"]
    separate.model._name.value = "gru"
    algorithm._add_choice("adversary")
    adversaries = algorithm.choices["adversary"].algorithm
    assert adversaries is not None
    adversaries._name.value = "a2c"
    assert algorithm._tabs.titles == ("all groups", "agent", "adversary") and algorithm._tabs.selected_index == 2
    assert algorithm.choices["agent"] is separate
    expected = Experiment.compose(*SMALL, "models.agent=gru", "algorithms.adversary=a2c")
    assert panel.experiment == expected
    panel.set(Experiment.compose(*SMALL, "models.agent=gru"))
    assert algorithm._tabs.titles == ("all groups", "agent") and algorithm._tabs.selected_index == 0


def test_an_option_of_an_agent_stays_whatever_its_group_is_called() -> None:
    groups = ("groups.team=[agent_0,agent_1]", "groups.other=[agent_2]", "models.team=gru")
    panel = TrainingPanel(Experiment.compose("env=mpe/simple_spread", *groups))
    until(lambda: panel.environment.spec is not None)
    panel.algorithm._add_choice("agent_0")
    panel.algorithm.choices["agent_0"].model.form.fields["hidden"].enter("8")
    assert panel.experiment.models["agent_0"].hidden == (8,)


@pytest.mark.parametrize(
    "separate",
    [
        ("algorithms.adversary=mappo", "algorithms.agent=iql"),
        ("models.agent=gru", "models.agent_0=mlp"),
        ("models.agent=gru", "critics.agent_0=mlp"),
    ],
)
def test_a_separate_choice_stays_if_it_equals_the_common_one(separate: tuple[str, ...]) -> None:
    experiment = Experiment.compose("env=mpe/simple_tag", *separate)
    panel = TrainingPanel(experiment)
    assert panel.experiment == experiment
    until(lambda: panel.environment.spec is not None)
    assert panel.experiment == experiment


def test_the_critic_that_a_tab_shows_is_used() -> None:
    experiment = Experiment.compose("env=mpe/simple_tag", "critic=deep_sets", "models.adversary=gru", "tuned=false")
    panel = TrainingPanel(experiment)
    choices = panel.algorithm.choices
    adversary = choices["adversary"]
    assert panel.experiment == experiment and not adversary.same_critic.value
    assert adversary.critic.name == experiment.critic_of("adversary").name == "deep_sets"
    adversary.same_critic.value = True
    assert panel.experiment.critic_of("adversary") == experiment.actor_of("adversary")
    assert "critics.adversary=gru" in _text(panel._as_command)
    choices["all groups"].same_critic.value = True
    assert panel.experiment == Experiment.compose("env=mpe/simple_tag", "models.adversary=gru", "tuned=false")
    choices["all groups"].same_critic.value = False
    choices["all groups"].critic._name.value = "deep_sets"
    panel.set(panel.experiment)
    assert adversary.same_critic.value and panel.experiment.critic_of("adversary").name == "gru"
    of_agent = Experiment.compose("env=mpe/simple_tag", "models.adversary_0=gru", "tuned=false")
    panel.set(of_agent)  # an agent's critic is that of its group
    assert panel.experiment == of_agent and not panel.algorithm.choices["adversary_0"].same_critic.value
    panel.algorithm.choices["adversary_0"].same_critic.value = True
    assert panel.experiment.critics["adversary_0"].name == "gru"


def test_networks_are_counted_by_an_independent_sum(panel: TrainingPanel) -> None:
    (adversary,) = [network for network in panel.algorithm.networks if network.group == "adversary"]
    n = 16  # features of an adversary's observation
    assert adversary.parameters["actor"] == n * 64 + 64 + 64 * 64 + 64 + 64 * 5 + 5
    assert adversary.parameters["critic"] == n * 64 + 64 + 64 * 64 + 64 + 64 * 1 + 1
    assert ("adversary/actor/hidden_1", 3, 64, "hidden") in adversary.sites


def test_bad_input_stops_at_the_field(panel: TrainingPanel) -> None:
    panel.length.fields["frames"].enter("many")
    for shown in (panel._problem, panel._as_code, panel._as_command):
        assert "frames must be a whole number" in _text(shown)
    assert panel._start_button.disabled
    with pytest.raises(ConfigError, match="frames must be a whole number"):
        panel.start()
    panel.length.fields["frames"].enter("400")
    assert not panel._start_button.disabled
    for wrong in ("soon", "nan", "inf"):
        panel._minutes.value = wrong
        assert f"a number of minutes above 0, or none; got '{wrong}'" in _text(panel._problem)
        assert "a number of minutes" in _text(panel._limit)
    panel._minutes.value = "2"
    assert "above 0" not in _text(panel._limit) and "timeout_s=120" in _text(panel._as_code)
    panel._source.value = "nowhere"
    panel._load()
    assert "nowhere is not the folder of a run" in _text(panel._loaded) and not panel._problem.value


def test_training_shows_the_run_and_stays_resumable(panel: TrainingPanel, tmp_path: Path) -> None:
    panel._folder.value = str(tmp_path / "run")
    panel._start_button.click()
    assert panel.run_panel is not None and panel.run_panel.training is not None
    run = panel.run_panel.training.wait(60)
    assert run.status()["state"] == "complete" and run.experiment == panel.experiment
    points = panel.run_panel.returns.get_state("lines")["lines"]
    until(lambda: panel.run_panel is not None and set(panel.run_panel.returns.lines) >= {"adversary", "agent"})
    assert points is not None
    bundle = panel._repr_mimebundle_()
    assert "image/png" in bundle  # for pages without widgets
    again = TrainingPanel(run=run.path)
    assert again.experiment == run.experiment and again.run is not None


def test_a_fault_while_training_is_shown_with_where_it_came_from(tmp_path: Path) -> None:
    experiment = Experiment.compose("env=pettingzoo/custom", "env.entry_point=tests.widgets.faulty:make", *SMALL[1:])
    panel = TrainingPanel(experiment, tmp_path / "run")
    panel._folder.value = str(tmp_path / "run")
    panel.start()
    run_panel = panel.run_panel
    assert run_panel is not None
    until(lambda: "Boom" in _text(run_panel._error))
    assert "faulty.py" in _text(run_panel._log) and not run_panel.buttons["start"].disabled
    assert run_panel.run.status()["state"] == "failed"


def test_a_training_that_cannot_start_is_shown_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    missing = ("env=pettingzoo/custom", "env.entry_point=tests.widgets.faulty:missing", *SMALL[1:])
    panel = TrainingPanel(Experiment.compose(*missing))
    panel._start_button.click()
    run_panel = panel.run_panel
    assert run_panel is not None
    until(lambda: "no name 'missing' in tests.widgets.faulty" in _text(run_panel._error) and not panel._folder.value)
    assert not run_panel.run.path.exists()


def test_an_error_without_a_text_is_shown_with_its_type_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    unready = "algorithm=tests.widgets.unready:Unready"
    panel = TrainingPanel(Experiment.compose("env=mpe/simple_spread", unready, *SMALL[2:]))
    panel.start()
    run_panel = panel.run_panel
    assert run_panel is not None
    until(lambda: _text(run_panel._error))
    kind, location, line = _text(run_panel._error).splitlines()
    assert kind == "AssertionError" and line == 'assert context.group.action.kind == "continuous"'
    assert re.fullmatch(r'File ".*unready\.py", line \d+, in build', location)


def test_a_failure_is_shown_when_its_folder_is_deleted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    may_discard, discard = threading.Event(), Run.discard_unstarted
    monkeypatch.setattr(Run, "discard_unstarted", lambda run: may_discard.wait(60) and discard(run))
    unready = "algorithm=tests.widgets.unready:Unready"
    panel = TrainingPanel(Experiment.compose("env=mpe/simple_spread", unready, *SMALL[2:]))
    training = panel.start()
    run_panel = panel.run_panel
    assert run_panel is not None
    until(lambda: training.run.status()["state"] == "failed")
    run_panel.catch_up()
    assert not _text(run_panel._error)
    may_discard.set()
    until(lambda: "AssertionError" in _text(run_panel._error))
    assert "The log below" not in _text(run_panel._error)  # it has none: its folder is deleted


def test_the_error_of_a_training_that_could_not_write_its_status_is_shown(tmp_path: Path) -> None:
    panel = TrainingPanel(Experiment.compose(*SMALL[:-2], "frames=100_000_000", "threads=1"), tmp_path / "run")
    panel.start()
    run_panel = panel.run_panel
    assert run_panel is not None
    until(lambda: run_panel.run.status()["state"] == "running")
    (tmp_path / "run").rename(tmp_path / "moved")
    until(lambda: "FileNotFoundError" in _text(run_panel._error))
    for _ in range(2):  # it stays
        run_panel.catch_up()
    assert "FileNotFoundError" in _text(run_panel._error) and "missing" in _text(run_panel._line)


def test_awaiting_trains_without_a_click(panel: TrainingPanel, tmp_path: Path) -> None:
    panel._folder.value = str(tmp_path / "run")
    assert asyncio.run(panel.train()).status()["state"] == "complete"


def test_a_time_limit_stops_and_saves(tmp_path: Path) -> None:
    panel = TrainingPanel(Experiment.compose(*SMALL[:-2], "frames=100_000_000", "threads=1"), tmp_path / "run")
    panel._minutes.value = "0.02"
    training = panel.start()
    assert training.wait(60).status()["state"] == "stopped" and training.run.checkpoints


def test_another_training_starts_when_the_first_is_stopped(tmp_path: Path) -> None:
    panel = TrainingPanel(Experiment.compose(*SMALL[:-2], "frames=100_000_000", "threads=1"), tmp_path / "a")
    training = panel.start()
    assert panel.start() is training
    panel.length.fields["seed"].enter("7")
    panel._start_button.click()
    assert "is a run of another experiment; seed: 0 there, 7 here" in _text(panel._problem)
    panel._folder.value = str(tmp_path / "b")
    panel._start_button.click()
    assert f"{tmp_path / 'a'} is still training: stop it first" in _text(panel._problem)
    training.stop()
    training.wait(60)
    other = panel.start()
    assert other.run.path == tmp_path / "b" and other.run.experiment.seed == 7
    other.stop()
    other.wait(60)


def test_a_run_resumes_in_its_folder_after_the_notebook_changed_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    panel = TrainingPanel(Experiment.compose(*SMALL[:-2], "frames=100_000_000", "threads=1"))
    for _ in range(2):
        training = panel.start()
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert panel.start() is training
        assert panel.run is not None and panel.run.path == tmp_path / "runs" / "simple_tag-ippo-0-1"
        training.stop()
        training.wait(60)


def test_a_form_loads_a_folder_a_file_or_overrides(tmp_path: Path) -> None:
    experiment = Experiment.compose(*SMALL)
    run = train(experiment, tmp_path / "run", progress=False)
    (tmp_path / "experiment.json").write_text((run.path / "experiment.json").read_text())
    panel = TrainingPanel()
    for source in (
        str(run.path),
        str(tmp_path / "experiment.json"),
        " ".join(SMALL),
        f"marlnb train {' '.join(SMALL)}",
        f"marlnb train --quiet --jobs 4 {' '.join(SMALL)} --record every_iterations=5,episodes=2 --jobs=2 --resume",
        as_command(experiment, "runs/a b", stop_after_s=300),
        as_command(experiment, "runs/a b").replace("\n", ""),  # as a page pastes it into one line
    ):
        panel.set(Experiment.compose("env=mpe/simple_spread"))
        panel.load(source)
        assert panel.experiment == experiment
    for wrong, message in (
        ("", "nothing to load"),
        ("nowhere", "not the folder of a run"),
        ("env=mpe/simple_tagg", "simple_tag"),
        ("env='", "quotation"),
    ):
        with pytest.raises((ConfigError, RunError), match=message):
            panel.load(wrong)
    assert Run.open(run.path).experiment == experiment
