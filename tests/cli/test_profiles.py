"""`marlnb profiles`: what there is, and files that make what they show."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from marlnb.batch.profile import Profile, find_profile, profiles
from marlnb.cli import main
from marlnb.cli.setup.profiles import as_yaml
from marlnb.errors import BatchError

ODD = Profile(
    executor="slurm",
    memory_gb=0.5,
    time_limit="1-00:00:00",
    constraint="a100&nvlink",
    options=("--exclusive", "--mail-type=END"),
    setup=("export A='b: #c'", 'echo "ünï"'),
    environment={"NOTE": "line\nbreak", "YES": "no"},
    accounting=False,
)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "profiles"
    folder.mkdir()
    monkeypatch.setenv("MARLNB_PROFILES", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


def test_profiles_are_listed_with_where_they_come_from(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "mine.yaml").write_text("# My cluster.\nexecutor: slurm\n")
    (own / "wrong.yaml").write_text("executer: slurm\n")
    assert main(["profiles", "--json"]) == 0
    rows = {row["profile"]: row for row in json.loads(capsys.readouterr().out)["profiles"]}
    assert rows["mine"] == {
        "profile": "mine",
        "executor": "slurm",
        "from": str(own / "mine.yaml"),
        "description": "My cluster.",
    }
    assert rows["jean-zay"]["from"] == "marlnb" and rows["local"]["executor"] == "local"
    assert "did you mean 'executor'" in rows["wrong"]["description"]
    assert main(["profiles"]) == 0
    printed = capsys.readouterr()
    assert "My cluster." in printed.out and "~/.config/marlnb/profiles/<name>.yaml" in printed.err


@pytest.mark.parametrize("name", sorted(profiles()))
def test_what_is_shown_makes_the_same_profile(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", name]) == 0
    assert Profile.from_json(yaml.safe_load(capsys.readouterr().out)) == find_profile(name)


def test_odd_values_are_shown_so_that_yaml_reads_them_back() -> None:
    text = as_yaml(ODD)
    assert Profile.from_json(yaml.safe_load(text)) == ODD
    for field in fields(Profile):
        assert f"# {field.metadata['help']}" in text and f"{field.name}: " in text
    assert "\n# cores: 1\n" in text and "\nmemory_gb: 0.5\n" in text


def test_a_profile_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "jean-zey"]) == 2
    assert "no profile 'jean-zey'; did you mean 'jean-zay'?" in capsys.readouterr().err


def test_a_time_without_quotes_is_an_error(own: Path) -> None:
    (own / "mine.yaml").write_text("executor: slurm\ntime_limit: 20:00:00\n")
    with pytest.raises(BatchError, match="got the number 72000"):
        find_profile("mine")


def test_an_empty_file_is_no_profile(own: Path) -> None:
    empty, commented = own / "slurm.yaml", own / "mine.yaml"  # `marlnb profiles slurm > slurm.yaml` starts with one
    empty.touch()
    commented.write_text("# executor: slurm\n")
    assert find_profile("slurm").executor == "slurm"
    for path in (empty, commented):
        with pytest.raises(BatchError, match=rf"{path.name}: expected keys and values, e\.g\. `cores: 2`; got no keys"):
            find_profile(str(path))
