"""Substrates need MeltingPot, which `make meltingpot-test` installs with marlnb and `make test` does not."""

from __future__ import annotations

from importlib.util import find_spec

if not find_spec("meltingpot"):
    collect_ignore_glob = ["*"]
