"""Every entry that marlnb comes with: its files, its card, its size, and that it opens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from marlnb.errors import CheckpointError
from marlnb.galleries.card import check_files
from marlnb.galleries.check import compare
from marlnb.galleries.entry import Entry
from marlnb.galleries.folders import CHECKOUT
from marlnb.training.runs.run import Run

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.parent.name for path in CHECKOUT.glob("*/card.json"))
MAX_BYTES, MAX_WHEEL_BYTES = 60_000_000, 15_000_000


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_opens_and_is_what_its_card_says(name: str) -> None:
    entry = Entry(CHECKOUT / name)
    check_files(entry.path, entry.card)
    run = entry.run
    assert run.policies().keys() == {group.name for group in run.spec.groups}
    if isinstance(run, Run):
        assert len(run.checkpoints) >= 3 and "exploring" in repr(run)
        with pytest.raises(CheckpointError):
            run.checkpoint(10**9)
    with entry.recording as recording:
        assert len(recording.episodes) >= 4 and recording.sites
    assert entry.recipe.limits, "an entry says what it does not show"
    outside = [str(comparison) for comparison in compare(entry.recipe, entry.card, entry.card) if not comparison.holds]
    assert not outside
    assert not re.search(r"/(work|home|tmp|root)/", (entry.path / "card.json").read_text())


def test_the_gallery_is_small_enough() -> None:
    sizes = {name: Entry(CHECKOUT / name).size_bytes for name in NAMES}
    assert sum(sizes.values()) <= MAX_BYTES, sizes
    shipped = re.findall(r'^"data/(\w+)" = "marlnb/galleries/entries/\1"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert shipped and sum(sizes[name] for name in shipped) <= MAX_WHEEL_BYTES
    assert set(sorted(sizes, key=sizes.__getitem__)[:5]) <= set(shipped), sizes
