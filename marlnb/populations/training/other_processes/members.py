"""OtherMembers: what other runs say about their members, where each member has its own run (`evolution.member`).

The training runs of a population have neighbouring run folders, and meet through files alone, at their own pace. At the
end of a generation each offers its member: `population/offer.json`, and the state of its learners. At the beginning of
the next one it reads what the others offer now. None waits for another one, so a training run that is lost delays no
other.

What a training run read is logged in `population/received.jsonl` before anything depends on it, and the learners that
it read stay in its own folder if its member continues with them. So a training run that resumes selects the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from marlnb.errors import CheckpointError, ConfigError
from marlnb.populations.append_only import append_rows
from marlnb.populations.evolution.lineage import POPULATION, Lineage
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.specs import EnvSpec
from marlnb.training.limits import LIMIT_OPTIONS
from marlnb.training.runs.comparable import CODE, IRRELEVANT, differences, is_part_of, read_settings
from marlnb.training.runs.files import is_run, read_lines, write_atomically
from marlnb.training.runs.records import checked_record, read_record

OFFER, RECEIVED = "offer.json", "received.jsonl"
OFFERED, PARENTS = "offered", "parents"  # folders of learners
N_OFFERED = 2  # the last one, and the one before for training runs that have just read of it
MEMBER = "evolution.member"


@dataclass(frozen=True)
class Offer:
    """A member at the end of a generation, as far as others need it.

    Attributes:
        row: its line of the lineage.
        scores: of its last evaluations and those of its ancestors, oldest first; empty if it diverged.
        learners: SHA-256 of the state of its learners; None if it diverged.
    """

    row: Lineage
    scores: tuple[float, ...] = ()
    learners: str | None = None


class OtherMembers:
    """The members of the other training runs, as far as their files say.

    Args:
        run: folder of this training run; the others' are next to it.
        spec: of the environment.
    Raises:
        ConfigError: a neighbouring training run has the same member, or belongs to another population.
    """

    def __init__(self, run: Path, spec: EnvSpec) -> None:
        member_folders(run)
        self._run, self._folder = run, run / POPULATION
        self._offered = SnapshotStore(self._folder / OFFERED, spec)
        self._parents = SnapshotStore(self._folder / PARENTS, spec)
        self._new: set[str] = set()  # learners that were copied here by the last `read`
        self._logged = {row["generation"]: row for row in read_lines(self._folder / RECEIVED)}

    def offer(self, row: Lineage, scores: tuple[float, ...], learners: Mapping[str, Any] | None) -> None:
        """Offers this training's member to the others.

        Args:
            row: its line of the lineage.
            scores: of its last evaluations.
            learners: the state of its learners by group; None: it diverged.
        Raises:
            CheckpointError, DiskError: a file cannot be written.
        """
        offer = Offer(row)
        if learners is not None:
            offer = Offer(row, scores, self._offered.write(row.id, row.frames, learners))
        write_atomically(self._folder / OFFER, json.dumps(asdict(offer), allow_nan=False))
        self._offered.keep_newest(N_OFFERED, offer.learners)

    def read(self, generation: int) -> dict[int, Offer]:
        """By place, what the others offer at the beginning of a generation: as it is logged, or else now.

        Raises:
            ConfigError: a neighbouring training run has the same member, or belongs to another population.
            CheckpointError: the learners of a member cannot be copied.
            RunError, DiskError: a file is damaged, or cannot be written.
        """
        row = self._logged.pop(generation, None)
        if row is None:
            offers = [self._take(folder) for folder in member_folders(self._run) if folder != self._run.absolute()]
            row = {"generation": generation, "offers": [asdict(offer) for offer in offers if offer is not None]}
            append_rows(self._folder / RECEIVED, [row])
        return {offer.row.member: offer for offer in _offers(row["offers"], str(self._folder / RECEIVED))}

    def learners(self, offer: Offer) -> dict[str, Any]:
        """The state of an offer's learners, by group. Raises CheckpointError: it is missing or damaged."""
        return self._parents.read(offer.row.id, offer.learners)

    def keep(self, learners: str | None) -> None:
        """Deletes the learners that were read last, except for those of the parent that was chosen."""
        for sha256 in self._new - {learners}:
            self._parents.remove(sha256)
        self._new = set()

    def _take(self, folder: Path) -> Offer | None:
        """What a training run offers, with its learners in this folder; None before the end of its first generation."""
        path = folder / POPULATION / OFFER
        while path.exists():
            offer = read_record(path, Offer)
            try:
                if offer.learners is not None and not self._parents.path(offer.learners).exists():
                    self._new.add(offer.learners)
                    self._parents.adopt(folder / POPULATION / OFFERED, offer.learners)
                return offer
            except CheckpointError:
                if read_record(path, Offer) == offer:  # it was not replaced meanwhile
                    raise
        return None


def member_folders(run: Path) -> dict[Path, int]:
    """The run folders of a population whose members have training runs of their own, with their members: this one too.

    Raises:
        ConfigError: a neighbouring training run has the same member, or belongs to another population.
    """
    run = run.absolute()
    own = read_settings(run)
    folders = {run: int(own[MEMBER])}
    for folder in sorted(run.parent.iterdir()):
        settings = read_settings(folder) if folder != run and is_run(folder) else {}
        member = settings.get(MEMBER)
        if member is None:
            continue
        changed = differences([own, settings])
        others = [key for key in changed if not is_part_of(key, (MEMBER, *LIMIT_OPTIONS, *IRRELEVANT, CODE))]
        if others:
            texts = [f"{key}: {changed[key][1]} there, {changed[key][0]} here" for key in others]
            raise ConfigError(
                f"{folder} trains a member of another population: {'; '.join(texts)}. Training runs in neighbouring "
                "folders with evolution.member belong to one population; give each population a folder of its own"
            )
        if member in folders.values():
            raise ConfigError(f"{folder} and another run next to it both train member {member} of one population")
        folders[folder] = int(member)
    return folders


def _offers(rows: Iterable[Mapping[str, Any]], where: str) -> list[Offer]:
    return [checked_record(row, Offer, where) for row in rows]
