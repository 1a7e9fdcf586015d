from __future__ import annotations

import subprocess
import sys

import pytest

from marlnb.cli import COMMANDS, main
from marlnb.experiment import Experiment


def run_isolated(*words: str) -> tuple[int, str, set[str]]:
    """(exit code, stdout, modules imported) of `marlnb <words>` in a process of its own."""
    code = (
        "import sys; from marlnb.cli import main; code = main(sys.argv[1:]);print(code, *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=200, check=True)
    status, *modules = done.stderr.split()
    return int(status), done.stdout, set(modules)


@pytest.mark.parametrize("words", [["--help"], ["list", "--help"], ["train", "--help"], ["evaluate", "-h"], ["-V"]])
def test_help_starts_without_torch(words: list[str]) -> None:
    status, text, modules = run_isolated(*words)
    assert status == 0 and text
    assert not modules & {"torch", "numpy", "hydra", "h5py", "pandas", "matplotlib"}


def test_importing_marlnb_and_its_experiment_needs_no_torch() -> None:
    code = (
        "import sys, marlnb; assert 'marlnb.config' not in sys.modules; marlnb.Experiment; marlnb.errors;"
        "assert not {'torch', 'numpy', 'hydra'} & set(sys.modules); print(marlnb.__version__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200, capture_output=True)


def test_the_overview_names_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    output = capsys.readouterr().out
    assert all(f"\n  {command} " in output for command in COMMANDS)
    assert "130 interrupted" in output
    assert main([]) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"usage: marlnb {command}" in capsys.readouterr().out


def test_help_of_train_states_every_option_with_unit_default_and_range(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    output = capsys.readouterr().out
    for name in Experiment.__dataclass_fields__:
        assert f"  {name}" in output
    assert "frames=1_000_000" in output
    assert "length of the training [frames; a whole number; at least 1]" in output
    assert "algorithm.gamma" not in output


def test_help_of_the_parts_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "algorithm=mappo", "models.a=gru", "--help"]) == 0
    output = capsys.readouterr().out
    assert "algorithm=mappo: Multi-agent PPO" in output
    assert "algorithm.gamma=0.99" in output and "at least 0; at most 1" in output
    assert "models.a.recurrent_size=64" in output


@pytest.mark.parametrize("command", ["train", "evaluate", "record", "benchmark", "list"])
def test_help_names_both_default_folders_of_variants(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([command, "--help"])
    assert "(default $MARLNB_CONFIG_DIR, or else ./conf if it exists)" in " ".join(capsys.readouterr().out.split())


def test_unknown_command_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "no command 'trian'; did you mean train" in capsys.readouterr().err
    assert main(["list", "envs", "--jsn"]) == 2
    assert "unrecognized arguments: --jsn" in capsys.readouterr().err
    assert main(["evaluate"]) == 2
    assert capsys.readouterr().err.endswith("the following arguments are required: RUN\n")
