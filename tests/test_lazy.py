from __future__ import annotations

import importlib

import pytest

import marlnb


@pytest.mark.parametrize("name", sorted(set(marlnb._HOME)))
def test_every_name_is_where_the_table_says(name: str) -> None:
    home = importlib.import_module(marlnb._HOME[name])
    assert getattr(marlnb, name) is getattr(home, name)
    assert name in dir(marlnb) and name in marlnb.__all__


def test_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Experimnt'; did you mean 'Experiment'"):
        marlnb.Experimnt  # noqa: B018
