"""YAML from anyone: the number of its values is bounded before they are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.errors import ConfigError
from marlnb.text_files import read_yaml

ALIASES = "a0: &a0 [1, 2]\n" + "".join(f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]\n" for k in range(1, 40))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: [" + "1," * 200_000 + "1]\n", "it has more than 10,000 values$"),
        ("".join(f"a{k}: 1\n" for k in range(60_000)), "it has more than 10,000 values$"),
        (ALIASES, "it has more than 10,000 values, with each alias counted as what it stands for$"),
        ("x: &x [*x]\n", "the alias .x is inside the value that it refers to$"),
        ("x: " + "[" * 3000 + "]" * 3000, "exceeded maximum nesting depth"),
    ],
    ids=["list", "mapping", "aliases", "circle", "depth"],
)
def test_yaml_with_too_many_values(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"x.yaml cannot be read( as YAML)?: [\s\S]*({message})"):
        read_yaml(tmp_path / "x.yaml")


def test_yaml_that_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml does not exist$"):
        read_yaml(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").mkdir()
    with pytest.raises(
        ConfigError, match=r"x\.yaml cannot be read as YAML: it is a folder; expected an ordinary file$"
    ):
        read_yaml(tmp_path / "x.yaml")


def test_yaml_with_many_values(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("x: &x [" + "1," * 4000 + "1]\ny: *x\n")
    assert read_yaml(tmp_path / "x.yaml") == {"x": [1] * 4001, "y": [1] * 4001}
