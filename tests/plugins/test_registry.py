from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from marlnb.config import ALGORITHMS, ENVIRONMENTS, MODELS, ModelConfig
from marlnb.errors import ConfigError, UnknownNameError, unknown
from marlnb.evolution_config import EVOLUTIONS
from marlnb.league_config import LEAGUES
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


@dataclass(frozen=True)
class Sized:
    size: int = 1
    sizes: Mapping[str, int] = field(default_factory=dict)
    unit: ClassVar[str] = "m"
    colour = "red"


def test_a_default_without_its_type_is_refused_when_the_class_is_registered() -> None:
    registry: Registry[type] = Registry("thing", "tests.plugins")

    class Untyped(Sized):
        size = 2

    class BeforeIt:
        size: int = 2

    for kind, value in (
        (Untyped, "Untyped.size = 2"),
        (dataclass(frozen=True)(Untyped), "Untyped.size = 2"),
        (make_dataclass("Below", (), bases=(Untyped,), frozen=True), "Untyped.size = 2"),
        (make_dataclass("Mixed", (), bases=(BeforeIt, Sized), frozen=True), "BeforeIt.size = 2"),
    ):
        with pytest.raises(ConfigError, match=rf"{value} does not change the option 'size'.*write `size: int = 2`"):
            registry.register("untyped")(kind)
    with pytest.raises(ConfigError, match=r"write `sizes: Mapping\[str, int\] = \{'a': 2\}`"):
        registry.register("mapping")(type("Untyped", (Sized,), {"sizes": {"a": 2}}))
    assert "untyped" not in dict(registry.items()) and "mapping" not in dict(registry.items())


def test_defaults_with_types_and_attributes_that_are_no_options_are_not_refused() -> None:
    registry: Registry[type] = Registry("thing", "tests.plugins")

    @registry.register("typed")
    @dataclass(frozen=True)
    class Typed(Sized):
        size: int = 2
        unit = "km"
        colour = "blue"

    @registry.register("slots")
    @dataclass(frozen=True, slots=True)
    class Slots(Sized):
        sizes: Mapping[str, int] = field(default_factory=dict)

    @registry.register("fixed")
    @dataclass(frozen=True)
    class Fixed(Sized):
        size: ClassVar[int] = 3  # no option any more

    @dataclass(frozen=True)
    @registry.register("inside")
    class Inside(Sized):
        size: int = 4

    @registry.register("required")
    @dataclass(frozen=True)
    class Required(Sized):
        size: int = field(kw_only=True)

    assert [registry.get(name) for name in ("typed", "slots", "required")] == [Typed, Slots, Required]
    assert (registry.get("typed")().size, registry.get("fixed")().size, Slots().size) == (2, 3, 1)


@pytest.mark.parametrize(
    ("registry", "base", "option"),
    [
        (ENVIRONMENTS, "marlnb.envs.tensor.tensor_env:TensorEnv", "max_steps: int = 7"),
        (ALGORITHMS, "marlnb.algorithms.configs.ppo:IPPOConfig", "epochs: int = 7"),
        (MODELS, "marlnb.models.networks.configs.mlp:MLPConfig", "share_parameters: bool = 7"),
        (LEAGUES, "tests.examples.rllib_league:RLlibLeague", "max_players: int = 7"),
        (EVOLUTIONS, "marlnb.evolution_config:EvolutionConfig", "population: int = 7"),
    ],
)
def test_so_it_is_by_an_import_path_and_of_every_kind_of_config(
    registry: Registry[type], base: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _, name = base.partition(":")
    lines = [
        "from dataclasses import dataclass",
        f"from {module} import {name}",
        "@dataclass(frozen=True)",
        f"class Quick({name}):",
        f"    {option.split(':')[0]} = 7",
        "    def build(self): ...",
        "    groups = start = step = observe = select = build",
    ]
    (tmp_path / "own_untyped.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_untyped", raising=False)
    for _ in range(2):
        with pytest.raises(ConfigError, match=rf"Quick.\w+ = 7 does not change the option .*write `{option}`"):
            registry.get("own_untyped:Quick")


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
