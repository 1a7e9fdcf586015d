from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from marlnb.config import ENVIRONMENTS, MODELS, ModelConfig
from marlnb.errors import ConfigError, UnknownNameError, unknown
from marlnb.plugins.registry import Registry

GOOD = """
from dataclasses import dataclass
from marlnb.config import ModelConfig, option
from marlnb.config import model

@model("theirs/linear")
@dataclass(frozen=True)
class LinearConfig(ModelConfig):
    \"\"\"A single layer.\"\"\"

    width: int = option(4, help="units", ge=1)

    def build(self, n_agents, in_features, out_features):
        raise NotImplementedError
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder as pip leaves it: two distributions with entry points, one of which cannot be imported."""
    _install(tmp_path, "their-models", "their_models", GOOD)
    _install(tmp_path, "ill-models", "ill_models", "raise RuntimeError('no licence')")
    return tmp_path


def _install(folder: Path, name: str, module: str, code: str) -> None:
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[marlnb.models]\n{name} = {module}\n")


def run(packages: Path, code: str) -> str:
    start = f"import sys; sys.path.insert(0, {str(packages)!r});"
    done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_third_party_registers_through_an_entry_point_and_is_used_by_name(packages: Path) -> None:
    output = run(
        packages,
        "from marlnb.experiment import Experiment;"
        "e = Experiment.compose('env=mpe/simple_spread', 'model=theirs/linear', 'model.width=7');"
        "assert Experiment.from_json(e.to_json()) == e; print(type(e.model).__module__, e.model.width)",
    )
    assert output.split() == ["their_models", "7"]


def test_a_broken_plug_in_is_named_and_takes_nothing_else_with_it(packages: Path) -> None:
    output = run(packages, "from marlnb.cli import main; main(['list', 'models'])")
    assert "theirs/linear" in output and "mlp" in output
    assert (
        "the plug-in 'ill-models' of ill-models 1.2 (marlnb.models = ill_models) could not be loaded: "
        "RuntimeError: no licence" in output
    )
    output = run(packages, "from marlnb.cli import main; main(['train', 'env=mpe/simple_spread', 'model=ill/net'])")
    assert "no model 'ill/net'" in output and "no licence" in output


def test_registering_twice_replaces_the_same_class_and_refuses_another() -> None:
    registry: Registry[type] = Registry("thing", "marlnb.models")
    first = type("Mine", (), {"__module__": "a"})
    again = type("Mine", (), {"__module__": "a"})
    other = type("Mine", (), {"__module__": "b"})
    registry.register("mine")(first)
    registry.register("mine")(again)  # a notebook's cell that is run again
    assert registry._members["mine"] is again
    with pytest.raises(ConfigError, match=r"thing 'mine' is registered already, by a.Mine"):
        registry.register("mine")(other)
    registry.register("cell's")(type("Before", (), {"__module__": "__main__"}))
    renamed = type("After", (), {"__module__": "__main__"})
    registry.register("cell's")(renamed)
    assert registry._members["cell's"] is renamed
    with pytest.raises(ConfigError, match=r"registered already, by __main__.After"):
        registry.register("cell's")(other)


@pytest.mark.parametrize("modules", [("__main__", "theirs"), ("theirs", "__main__")])
def test_a_cell_that_moved_to_a_module_and_a_script_that_is_imported_are_redefined(modules: tuple[str, str]) -> None:
    registry: Registry[type] = Registry("thing", "marlnb.models")
    first, again = (type("Mine", (), {"__module__": module}) for module in modules)
    registry.register("mine")(first)
    registry.register("mine")(again)
    assert registry._members["mine"] is again
    registry.register("built in")(type("Mine", (), {"__module__": "marlnb.models.theirs"}))
    with pytest.raises(ConfigError, match=r"registered already, by marlnb.models.theirs.Mine"):
        registry.register("built in")(type("Mine", (), {"__module__": "__main__"}))


def test_members_know_their_name_and_unknown_ones_the_nearest() -> None:
    member = MODELS.get("mlp")
    assert member.name == "mlp" and issubclass(member, ModelConfig)
    with pytest.raises(UnknownNameError, match=r"no model 'mlpp'; did you mean 'mlp'\? Valid: .*gru.*"):
        MODELS.get("mlpp")


def test_a_package_that_cannot_be_imported_fails_each_time_it_is_asked() -> None:
    registry: Registry[type] = Registry("thing", "marlnb.no_such_package")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError):
            registry.names()


def test_a_library_that_is_not_installed_is_named() -> None:
    registry: Registry[type] = Registry("environment", "marlnb.envs.mpe")
    registry.needs("atari/", "Atari: pip install it")
    with pytest.raises(UnknownNameError, match="environment 'atari/pong' needs Atari: pip install it"):
        registry.get("atari/pong")
    registry.register("atari/breakout")(type("Breakout", (), {}))
    with pytest.raises(UnknownNameError, match="no environment 'atari/pong'"):
        registry.get("atari/pong")


def test_of_many_names_those_of_the_asked_family_are_listed_first() -> None:
    valid = [*(f"openspiel/{k:03}" for k in range(100)), "vmas/wheel", "vmas/balance"]
    assert (
        unknown("environment", "vmas/whel", valid)
        .split("Valid: ")[1]
        .startswith("vmas/balance, vmas/wheel, openspiel/000, openspiel/001, ")
    )
    assert unknown("model", "mlpp", ["mlp", "gru"]).endswith("Valid: gru, mlp")


def test_a_class_with_options_that_is_no_dataclass_is_refused_when_it_is_used() -> None:
    registry: Registry[type] = Registry("thing", "tests.plugins")

    @dataclass(frozen=True)
    class Thing:
        size: int = 1

    @registry.register("plain")
    class Plain(Thing):
        """It has the options of its base class."""

    @registry.register("wide")
    class Wide(Thing):
        width: int = 2

    assert registry.get("plain") is Plain
    with pytest.raises(ConfigError, match=r"Wide needs the decorator @dataclass\(frozen=True\)"):
        registry.get("wide")
    assert registry.get("plain")().size == 1


def test_such_a_class_by_its_import_path_is_not_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "import marlnb as mnb",
        "class Bad(mnb.EnvConfig):",
        "    size: int = 1",
        "    def build(self, n_envs): ...",
    ]
    (tmp_path / "own_undecorated.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"Bad needs the decorator"):
            ENVIRONMENTS.get("own_undecorated:Bad")
    assert "own_undecorated:Bad" not in dict(ENVIRONMENTS.items())
