"""A pasted `marlnb train` command is read with all of its flags."""

from __future__ import annotations

from pathlib import Path

from marlnb.cli import parser_of
from marlnb.widgets.forms.load_experiment import FLAGS_WITH_VALUE, load_experiment


def test_the_flags_are_those_of_the_command() -> None:
    actions = parser_of("train")._actions
    assert {name for action in actions if action.nargs is None for name in action.option_strings} == {*FLAGS_WITH_VALUE}


def test_a_command_brings_its_folder_of_variants(tmp_path: Path) -> None:
    (tmp_path / "env" / "mpe").mkdir(parents=True)
    (tmp_path / "env" / "mpe" / "short.yaml").write_text("defaults: [simple_spread]\nmax_cycles: 7\n")
    for flag in (f"--config-dir {tmp_path}", f"--config-dir={tmp_path}"):
        experiment = load_experiment(f"marlnb train {flag} env=mpe/short frames=77 --quiet")
        assert (experiment.env.name, experiment.frames) == ("mpe/simple_spread", 77)
        assert experiment.env.max_cycles == 7  # type: ignore[attr-defined]
