"""Other people's run folders: whatever is opened, shown or planned runs none of the code that they name."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

import marlnb as mnb
from marlnb import trust
from marlnb.batch.benchmark.benchmark import Benchmark
from marlnb.batch.report.comparison import _curves, _runs_in
from marlnb.cli import main
from marlnb.errors import ConfigError, MarlnbError, TrustError
from marlnb.experiment import Experiment
from marlnb.plots.runs.learning import learning_curve
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.checkpoints.notes import CheckpointNotes
from marlnb.training.runs.follow import RunFollower
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from marlnb.widgets.forms.load_experiment import load_experiment
from marlnb.widgets.recordings.recording_panel import RecordingPanel
from marlnb.widgets.runs.attach import attach
from marlnb.widgets.runs.checkpoints_panel import CheckpointsPanel
from marlnb.widgets.runs.training_panel import TrainingPanel

TINY = ("frames=64", "n_envs=2", "rollout_steps=8", "algorithm=ippo", "algorithm.epochs=1", "model.hidden=[4]")
EVIL = """
from pathlib import Path
Path({mark!r}).write_text("imported")
"""

FINE = """
from dataclasses import dataclass
from marlnb.algorithms.configs.ppo import IPPOConfig

@dataclass(frozen=True)
class Fine(IPPOConfig):
    '''Fine.'''
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run with a recording, which names no code."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    run = train(Experiment.compose("env=mpe/simple_spread", "env.max_cycles=4", *TINY), folder, progress=False)
    mnb.record(run, episodes=2, progress=False).close()
    return folder


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_modules_forgotten: None) -> Path:
    """The file that exists as soon as any planted code has run; a module `evil` lies in the current folder."""
    here = tmp_path / "here"
    here.mkdir()
    mark = tmp_path / "mark"
    (here / "evil.py").write_text(EVIL.format(mark=str(mark)))
    monkeypatch.chdir(here)
    return mark


COMMAND = {"command": "echo ran > ../mark"}
HOSTILE: dict[str, dict[str, Any]] = {
    "a constructor": {"env": {"name": "pettingzoo/custom", "entry_point": "os:system", "kwargs": COMMAND}},
    "a constructor of torchrl": {"env": {"name": "torchrl/custom", "entry_point": "os:system", "kwargs": COMMAND}},
    "arguments": {"env": {"name": "pettingzoo/custom", "entry_point": "a:b", "arguments": "evil:Arguments"}},
    "an environment": {"env": {"name": "evil:Env"}},
    "an algorithm": {"algorithm": {"name": "evil:Algorithm"}},
    "a group's algorithm": {"algorithms": {"agent": {"name": "evil:Algorithm"}}},
    "a network": {"model": {"name": "evil:Model"}},
    "an agent's critic": {"critics": {"agent_0": {"name": "evil:Model"}}},
    "a function": {"algorithms": {"agent": {"name": "scripted", "function": "evil:act"}}},
}


def _hostile(trained: Path, folder: Path, changes: dict[str, Any], *, started: bool = True) -> Path:
    shutil.copytree(trained, folder)
    file = folder / "experiment.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    if not started:
        (folder / "spec.json").unlink()
    _plant_in_recording(folder / "recordings" / "recording.h5", file.read_text())
    return folder


def _plant_in_recording(path: Path, experiment: str) -> None:
    import h5py

    with h5py.File(path, "r+") as file:
        file.attrs["experiment"] = experiment


def _looks(folder: Path) -> dict[str, Callable[[], Any]]:
    """Everything that opens, lists, shows, plots, compares, follows or plans."""
    recording = folder / "recordings" / "recording.h5"

    def panel(kind: Callable[[Any], Any]) -> None:
        made = kind(Run.open(folder))
        made.close()

    def attached() -> None:
        made = attach(folder)
        made.catch_up()
        for index in range(len(made.tabs.children)):
            made.tabs.selected_index = index
        assert made.trust_question.widget.layout.display == ""
        made.close()

    def form() -> None:
        made = TrainingPanel(run=folder)
        assert made.trust_question.widget.layout.display == "" and made.experiment.env.name == "mpe/simple_spread"
        assert made.run_panel is not None
        made.run_panel.close()

    def read() -> None:
        with mnb.Recording.open(recording) as opened:
            assert opened.experiment is not None and opened.settings and repr(opened.experiment)
            mnb.to_pandas(opened)

    def plot() -> None:
        table = Run.open(folder).metrics()
        learning_curve(table["frames"], table["returns/agent"].to_numpy())
        plt.close("all")

    return {
        "open": lambda: [str(Run.open(folder)), Run.open(folder)._repr_html_(), repr(Run.open(folder).experiment)],
        "html": lambda: Run.open(folder).experiment._repr_html_(),
        "status": lambda: Run.open(folder).status(),
        "metrics": lambda: Run.open(folder).metrics(),
        "checkpoints": lambda: [
            Run.open(folder).checkpoint(),
            Run.open(folder).origin(),
            CheckpointNotes(folder).note(),
        ],
        "follow": lambda: RunFollower(Run.open(folder)).read(),
        "info": lambda: main(["info", str(folder), "--json"]),
        "info on a recording": lambda: main(["info", str(recording), "--json"]),
        "compare": lambda: [_curves(run, "training") for run, _ in _runs_in(folder)],
        "load": lambda: load_experiment(str(folder)),
        "load a file": lambda: load_experiment(str(folder / "experiment.json")),
        "edits": lambda: mnb.list_edits(folder),
        "attach": attached,
        "training panel": form,
        "checkpoints panel": lambda: panel(CheckpointsPanel),
        "recordings panel": lambda: panel(RecordingPanel),
        "recording": read,
        "plot": plot,
        "microscope": lambda: mnb.microscope(recording).wait(),
    }


def _asks(folder: Path) -> dict[str, Callable[[], Any]]:
    """What needs the folder's code: nothing of it runs before the user trusts it."""
    recording = folder / "recordings" / "recording.h5"
    return {
        "plan": lambda: mnb.plan_recording(folder, episodes=1),
        "evaluate": lambda: evaluate(folder, episodes=1),
        "record": lambda: mnb.record(folder, name="other", episodes=1, progress=False),
        "resume": lambda: resume(folder, frames=128, progress=False),
        "train": lambda: train(Run.open(folder).experiment, folder.with_name("mine"), progress=False),
        "replay": lambda: mnb.replay(mnb.Recording.open(recording), 0),
        "evaluate command": lambda: _command("evaluate", folder, "--episodes", "1"),
        "record command": lambda: _command("record", folder, "--plan"),
        "resume command": lambda: _command("resume", folder, "--frames", "128"),
    }


def _command(command: str, folder: Path, *words: str) -> None:
    if main([command, str(folder), *words]) == 2:
        raise TrustError("see stderr")


@pytest.mark.parametrize("what", HOSTILE)
def test_nothing_runs_when_a_folder_is_opened_shown_or_planned(
    what: str, trained: Path, tmp_path: Path, mark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _hostile(trained, tmp_path / "theirs", HOSTILE[what])
    before = list(sys.path)
    looks = _looks(folder)
    for name in looks if what == "a constructor" else ("open", "html", "status", "info", "load"):
        looks[name]()
        assert not mark.exists(), name
    captured = capsys.readouterr()
    assert '"kind": "run"' in captured.out and not captured.err
    for name, ask in _asks(folder).items():
        with pytest.raises(MarlnbError):
            ask()
        assert not mark.exists(), name
    assert "names code that none of your own training runs used" in capsys.readouterr().err
    assert sys.path == before and "evil" not in sys.modules
    assert not folder.with_name("mine").exists()


def test_the_question_names_part_function_and_file(trained: Path, tmp_path: Path, mark: Path) -> None:
    changes = {"env": {"name": "pettingzoo/custom", "entry_point": "theirs_env:make", "kwargs": {}}}
    folder = _hostile(trained, tmp_path / "theirs", {**changes, **HOSTILE["a function"]}, started=False)
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "theirs_env.py").write_text(EVIL.format(mark=str(mark)))
    sys.path.append(str(tmp_path / "library"))
    with pytest.raises(TrustError) as asked:
        evaluate(folder, episodes=1)
    assert f"env.entry_point: imports and calls theirs_env:make, from {tmp_path}/library/theirs_env.py" in str(
        asked.value
    )
    with pytest.raises(
        TrustError, match=r"algorithms.agent.function: .*evil:act \(no module evil on sys.path; the curr"
    ):
        Run.open(folder).experiment.loaded(env=False)
    assert "trust=True" in str(asked.value) and "--trust" in str(asked.value) and not mark.exists()


def test_even_trusted_nothing_but_an_environment_is_called(trained: Path, tmp_path: Path, mark: Path) -> None:
    (mark.parent / "here" / "shell.py").write_text("import subprocess\nfrom os import system\nrun = subprocess.run\n")
    for entry_point in ("os:system", "shell:system", "shell:run", "shell:subprocess.Popen"):
        changes = {"env": {"name": "pettingzoo/custom", "entry_point": entry_point, "kwargs": COMMAND, "workers": 0}}
        folder = _hostile(trained, tmp_path / entry_point.replace(":", "_"), changes)
        sys.path.append(str(mark.parent / "here"))
        with pytest.raises(ConfigError, match=r"a module of Python itself|must be a function or class"):
            evaluate(folder, episodes=1, trust=True)
        assert not mark.exists(), entry_point


def test_trust_lasts_and_does_not_search_the_current_folder(trained: Path, tmp_path: Path, mark: Path) -> None:
    (mark.parent / "here" / "fine.py").write_text(FINE)
    options = json.loads((trained / "experiment.json").read_text())["algorithm"]
    folder = _hostile(trained, tmp_path / "theirs", {"algorithm": {**options, "name": "fine:Fine"}})
    sys.path[:] = [entry for entry in sys.path if entry]
    with pytest.raises(ConfigError, match=r"cannot import 'fine'.*not searched in the current folder; PYTHONPATH"):
        evaluate(folder, episodes=1, trust=True)
    assert str(mark.parent / "here") not in sys.path
    sys.path.append(str(mark.parent / "here"))
    assert evaluate(folder, episodes=1).episodes == 1  # trusted above
    trust._session.clear()
    assert evaluate(folder, episodes=1).episodes == 1  # and in later processes
    changed = json.loads((folder / "experiment.json").read_text())
    changed["algorithm"]["gamma"] = 0.5
    (folder / "experiment.json").write_text(json.dumps(changed))
    with pytest.raises(TrustError, match=r"algorithm: imports fine:Fine, from .*/fine\.py"):
        evaluate(folder, episodes=1)


def test_a_button_trusts(trained: Path, tmp_path: Path, mark: Path) -> None:
    (mark.parent / "here" / "acts.py").write_text(
        "def act(observation, action_mask, group, generator):\n    return action_mask.float().argmax(-1)\n"
    )
    sys.path.append(str(mark.parent / "here"))
    changes = {"algorithms": {"agent": {"name": "scripted", "function": "acts:act"}}}
    panel = TrainingPanel(run=_hostile(trained, tmp_path / "theirs", changes))
    assert "acts:act, from" in panel.trust_question._text.value and "acts" not in sys.modules
    panel.trust_question.button.click()
    assert panel.trust_question.widget.layout.display == "none"
    assert panel.experiment.algorithms["agent"].name == "scripted"
    assert panel.run_panel is not None and panel.run_panel.trust_question.widget.layout.display == "none"
    panel.run_panel.close()


def test_the_microscope_asks_with_a_button(trained: Path, tmp_path: Path, mark: Path) -> None:
    (mark.parent / "here" / "fine.py").write_text(FINE)
    sys.path.append(str(mark.parent / "here"))
    options = {**json.loads((trained / "experiment.json").read_text())["algorithm"], "gamma": 0.7}  # no other test's
    folder = _hostile(trained, tmp_path / "theirs", {"algorithm": {**options, "name": "fine:Fine"}})
    scope = mnb.microscope(folder / "recordings" / "recording.h5")
    scope.wait()
    question = scope.controls.trust_question
    assert "fine:Fine, from" in question._text.value and question.widget in scope.widget.children
    assert "fine" not in sys.modules and "fine:Fine" in scope.scope.attributions[0]["reasons"]["agent"]
    question.button.click()
    scope.wait()
    assert question.widget.layout.display == "none" and not scope.scope.attributions[0]["reasons"]
    assert set(scope.scope.attributions[0]["agents"]) == set(scope.view.agents)
    again = mnb.microscope(folder / "recordings" / "recording.h5")
    again.wait()
    assert again.controls.trust_question.widget.layout.display == "none"


def test_the_run_of_a_frozen_policy_is_asked_about_too(trained: Path, tmp_path: Path, mark: Path) -> None:
    theirs = _hostile(trained, tmp_path / "theirs", HOSTILE["a network"])
    outer = _hostile(trained, tmp_path / "outer", {"algorithms": {"agent": {"name": "frozen", "run": str(theirs)}}})
    with pytest.raises(TrustError, match=r"theirs names code .*\n  model: imports evil:Model"):
        Run.open(outer).policies()
    with pytest.raises(ConfigError, match="cannot import 'evil'"):
        Run.open(outer, trust=True).policies()
    assert not mark.exists()


OWN_ENV = """
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

class Own(ParallelEnv):
    metadata = {"name": "own"}
    possible_agents = ["a_0", "a_1"]
    def observation_space(self, agent): return Box(0, 9, (1,))
    def action_space(self, agent): return Discrete(2)
    def reset(self, seed=None, options=None):
        self.agents, self.t = self.possible_agents[:], 0
        return {a: [0.0] for a in self.agents}, {a: {} for a in self.agents}
    def step(self, actions):
        self.t += 1
        living, over = self.agents, self.t >= 3
        self.agents = [] if over else living
        same = lambda value: {a: value for a in living}
        return same([float(self.t)]), same(1.0), same(over), same(False), same({})
"""
OWN_RUN = ("env=pettingzoo/custom", "env.entry_point=own_env:Own", "env.workers=0")


def test_ones_own_training_needs_no_permission_in_a_fresh_process(
    tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = mark.parent / "here"
    (here / "own_env.py").write_text(OWN_ENV)
    train(Experiment.compose(*OWN_RUN, *TINY), "run", progress=False)
    shutil.move("run", "moved")
    code = "import marlnb as mnb; print(mnb.evaluate('moved', episodes=1).return_mean)"
    done = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True)
    assert done.stdout.strip() == "{'a': 3.0}", done.stderr
    files = list(trust.record_folder().glob("trained-*.json"))
    assert files and all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    monkeypatch.setenv("MARLNB_DATA_DIR", str(tmp_path / "another user"))
    monkeypatch.setattr(trust, "_session", {})
    with pytest.raises(TrustError, match="moved names code that none of your own training runs used"):
        evaluate("moved", episodes=1)


def test_a_record_that_cannot_be_written(tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only home, here a file: this process trusts what it trains, and the run says that others will ask."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MARLNB_DATA_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(trust, "_session", {})
    (mark.parent / "here" / "own_env.py").write_text(OWN_ENV)
    experiment = Experiment.compose(*OWN_RUN, *TINY, "env.max_steps=9")
    run = train(experiment, "run", progress=False)
    assert evaluate("run", episodes=1).return_mean == {"a": 3.0}
    assert "other processes will ask before they import what this experiment names" in run.events()[0]
    trust._session.clear()
    with pytest.raises(TrustError):
        evaluate("run", episodes=1)
    assert train(experiment, "run", resume=True, progress=False).status()["state"] == "complete"  # a job's next attempt
    assert evaluate("run", episodes=1).return_mean == {"a": 3.0}


HOSTILE_OVERRIDES = {
    "an algorithm": ["algorithm=evil:Algorithm"],
    "a group's algorithm": ["algorithms.agent=evil:Algorithm"],
    "a network in a mapping": ["models={agent:{name:evil:Model}}"],
    "an environment": ["env=evil:Env"],
    "a constructor": ["env=pettingzoo/custom", "env.entry_point=evil:make"],
    "a YAML file": ["algorithm=careful"],
}


def _benchmark_folder(trained: Path, folder: Path, overrides: list[str]) -> Path:
    """Another person's benchmark of two runs, one of which has started."""
    shutil.copytree(trained, folder / "runs" / "mpe" / "simple_spread" / "theirs" / "seed_0")
    (folder / "conf" / "algorithm").mkdir(parents=True)
    (folder / "conf" / "algorithm" / "careful.yaml").write_text("name: evil:Algorithm\n")
    spec = {"algorithms": {"theirs": ["algorithm=ippo", *overrides]}, "environments": {"mpe/simple_spread": []}}
    more = {"seeds": [0, 1], "config_dir": str(folder / "conf")}
    (folder / "benchmark.json").write_text(json.dumps({**spec, **more}))
    return folder


@pytest.mark.parametrize("what", HOSTILE_OVERRIDES)
def test_another_persons_benchmark_is_read_without_its_code(
    what: str,
    trained: Path,
    tmp_path: Path,
    mark: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MARLNB_DATA_DIR", str(tmp_path / "data"))  # what other tests trusted is not trusted here
    monkeypatch.setattr(trust, "_session", {})
    folder = _benchmark_folder(trained, tmp_path / "theirs", HOSTILE_OVERRIDES[what])
    opened = Benchmark.open(folder)
    table = opened.table()
    assert list(table["state"]) == ["to evaluate", "missing"] and list(table["frames"]) == [64, 0]
    assert table["of"][0] == 64 and (what == "a constructor") == bool(table["of"][1] > 0)
    assert opened.runs() == [] and opened.references()["mpe/simple_spread"]["random"] < 0
    assert main(["benchmark", str(folder), "--dry-run"]) == (2 if what == "a constructor" else 0)  # another experiment
    assert not mark.exists()
    capsys.readouterr()
    assert main(["benchmark", str(folder)]) == 2
    asked = capsys.readouterr().err
    assert "names code that none of your own training runs used" in asked and " evil:" in asked
    with pytest.raises(TrustError, match="--trust"):
        mnb.benchmark(opened.spec, tmp_path / "mine", progress=False)
    assert not mark.exists() and not (tmp_path / "mine").exists()
    sys.path.append(str(mark.parent / "here"))
    with pytest.raises(MarlnbError):  # it is found now, and is no algorithm
        Benchmark.open(folder, trust=True).spec.runs()[0].experiment.loaded().env.build(1)
    assert mark.exists()


def test_ones_own_benchmark_needs_no_permission_in_a_fresh_process(tmp_path: Path, mark: Path) -> None:
    (mark.parent / "here" / "own_env.py").write_text(OWN_ENV)
    (mark.parent / "here" / "fine.py").write_text(FINE)
    done = mnb.benchmark(
        out="bench",
        algorithms={"fine": ["algorithm=fine:Fine"]},
        environments={"own": list(OWN_RUN)},
        overrides=[*TINY[:3], "model.hidden=[4]", "evaluation_episodes=1"],
        seeds=1,
        evaluations=1,
        report=False,
        progress=False,
    )
    assert not done.failed and list(done.table()["state"]) == ["complete"]
    spec = json.loads((done.path / "benchmark.json").read_text())
    (done.path / "benchmark.json").write_text(json.dumps({**spec, "seeds": [0, 1]}))
    code = (
        "import marlnb as mnb; opened = mnb.Benchmark.open('bench'); print(list(opened.table()['of']), end=' '); "
        "opened.references(); print(mnb.benchmark(opened.spec, 'bench', report=False, progress=False).failed)"
    )
    more = subprocess.run([sys.executable, "-c", code], cwd=mark.parent / "here", capture_output=True, text=True)
    assert more.stdout.strip() == "[64, 64] {}", more.stderr
