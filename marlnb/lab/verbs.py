"""Session: what the extension can ask for. Each public method is a verb that takes and returns JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marlnb.lab.batches import batch_form, run_batch
from marlnb.lab.compare import SEED, compare
from marlnb.lab.first_hour import first_hour
from marlnb.lab.queue import Queue
from marlnb.lab.run_map import map_in_a_process
from marlnb.lab.run_page import Action, act, run_code, run_page
from marlnb.training.runs.listing import RunListing
from marlnb.training.runs.run_notes import write_notes
from marlnb.training.runs.run_removal import delete_run

BUDGET_S = 0.05  # of one answer
QUEUE = Queue()


class Session:
    """One open page of the extension."""

    def __init__(self) -> None:
        self._listings: dict[tuple[str, ...], RunListing] = {}

    def runs(self, folders: Sequence[str], *, fresh: bool = False) -> dict[str, Any]:
        """Runs under some folders that are new or changed since the last call.

        Args:
            folders: relative to the kernel's, or absolute.
            fresh: return all of them.
        """
        key = tuple(folders)
        if fresh or key not in self._listings:
            self._listings[key] = RunListing(folders)
        changes = self._listings[key].read(BUDGET_S)
        return {
            "changed": [run.to_json() for run in changes.changed],
            "removed": changes.removed,
            "complete": changes.is_complete,
            "problems": changes.problems,
        }

    def run(self, path: str) -> dict[str, Any]:
        """Everything that a run's page shows."""
        return run_page(Path(path))

    def code(self, path: str) -> dict[str, Any]:
        """Commands and cells for a run."""
        return run_code(Path(path))

    def act(self, path: str, action: Action) -> str:
        """pause, continue, save, stop or resume; returns what happens, in words."""
        return act(Path(path), action)

    def annotate(self, path: str, tags: Sequence[str], note: str) -> None:
        """Replaces a run's tags and note."""
        write_notes(Path(path), tags=tags, note=note)

    def delete(self, path: str) -> None:
        """Deletes a run's folder."""
        delete_run(Path(path))

    def compare(self, paths: Sequence[str], average_over: Sequence[str] = (SEED,)) -> dict[str, Any]:
        """Differing settings, curves with intervals, and what was not averaged and why."""
        return compare(paths, average_over=average_over)

    def run_map(self, paths: Sequence[str], site: str = "", agent: str = "") -> dict[str, Any]:
        """Runs by what their agents' units represent, and where every two differ most."""
        return map_in_a_process(paths, site, agent)

    def names(self) -> dict[str, list[str]]:
        """By part of an experiment, as `env`, the names that can be chosen, the user's own variants included."""
        from marlnb.composition.compose import REGISTRIES
        from marlnb.composition.variants import Variants

        variants = Variants.find(None)
        return {part: sorted({*registry.names(), *variants.names(part)}) for part, registry in REGISTRIES.items()}

    def first_hour(self, folder: str) -> str:
        """The path of the first hour's start page below a folder; from a wheel its notebooks are copied there."""
        return str(first_hour(Path(folder)))

    def batch_form(self, notebook: str) -> dict[str, Any]:
        """The parameters of a notebook, and the profiles."""
        return batch_form(notebook)

    def batch(
        self,
        notebook: str,
        parameters: Sequence[str],
        on: str,
        settings: Sequence[str],
        out: str = "",
        submit: bool = False,
    ) -> dict[str, Any]:
        """The plan and script of a batch as the command prints them, or its submission."""
        return run_batch(notebook, parameters=parameters, on=on, settings=settings, out=out, submit=submit)

    def queue(self, folders: Sequence[str], *, fresh: bool = False) -> dict[str, Any]:
        """The batches under some folders with the state of each job; `fresh` searches for new ones now."""
        return QUEUE.read(folders, fresh=fresh)

    def job(self, batch: str, name: str) -> dict[str, Any]:
        """A job's state, output, and why it failed."""
        return QUEUE.read_job(batch, name)

    def cancel(self, batch: str, jobs: Sequence[str] = ()) -> str:
        """Ends jobs, by default all that have not ended; returns what happens, in words."""
        return QUEUE.cancel(batch, jobs)

    def requeue(self, batch: str, jobs: Sequence[str] = ()) -> str:
        """Submits jobs again, by default all that are not complete; returns what happens, in words."""
        return QUEUE.requeue(batch, jobs)
