"""Recording: reads what `record` wrote, lazily and by name."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import h5py
import numpy as np

from marlnb.display.formatting import count, short_path
from marlnb.display.notebook_html import facts_html
from marlnb.errors import RecordingError, RunError, SiteError, unknown
from marlnb.experiment import Experiment
from marlnb.paths import expanded
from marlnb.recording.file.array import LabelledArray, Selector
from marlnb.recording.file.contents import check_contents
from marlnb.recording.file.episode_index import EpisodeIndex
from marlnb.recording.file.journal import is_being_written
from marlnb.recording.file.layout import BFLOAT16, axis_names, count_rows, datasets_below, is_bfloat16
from marlnb.recording.file.opening import Locking, changed_meanwhile, reading
from marlnb.recording.file.row_checks import RowChecks
from marlnb.recording.file.segments import open_joined, segments_folder
from marlnb.specs import EnvSpec
from marlnb.training.runs.spec_file import spec_from_json

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

LIVE_ATTEMPTS = 5  # to open a file that its writer changes meanwhile
LIVE_WAIT_S = 0.1


class Recording:
    """A recording on disk. Arrays are read when they are used; `close` or a `with` block closes the file.

    It can be passed to another process, which opens the file again.

    Attributes:
        path: the file, absolute, so that the working directory may change while it is open.
        locking: HDF5's file locking, as h5py takes it.
    """

    def __init__(self, path: Path, locking: Locking = None) -> None:
        """Use `Recording.open`."""
        self.path = path.absolute()
        self.locking = locking
        self._opened: tuple[int, h5py.File, RowChecks, dict[str, Any]] | None = None
        self._closed = False
        for attempt in range(LIVE_ATTEMPTS):
            try:
                with reading(self.path, "its table of episodes"):
                    check_contents(self.file, self.path)
                    self._index = EpisodeIndex.read(self.file, count_rows(self.file))
                return
            except RecordingError as error:
                self.release()
                if locking is not False or not self._is_being_written():
                    raise
                if attempt == LIVE_ATTEMPTS - 1:
                    raise RecordingError(changed_meanwhile(path)) from error
            time.sleep(LIVE_WAIT_S)

    @staticmethod
    def open(path: str | os.PathLike[str], *, locking: Locking = None) -> Recording:
        """Opens a recording. An incomplete one holds everything that was written.

        Args:
            locking: HDF5's file locking. False reads a file that is still being written, up to its last block, and
                files on file systems without locks.
        Raises:
            RecordingError: the file does not exist, is locked, is no recording, is damaged, or has something that no
                recording has, as a link to another file. Rows are checked when they are first read, where the file has
                checksums, and raise RecordingError as well.
        """
        return Recording(expanded(path), locking)

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        self.release()
        self._closed = True

    def release(self) -> None:
        """Closes the file until it is next read, so that it can be changed in the meantime."""
        if self._opened is not None and self._opened[0] == os.getpid():
            self._opened[2].close()
            self._opened[1].close()
        self._opened = None

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Recording, (self.path, self.locking)

    @property
    def file(self) -> h5py.File:
        """The open HDF5 file. Each process opens its own: a handle shared across a fork would lose data silently."""
        return self._open()[0]

    def _open(self) -> tuple[h5py.File, RowChecks, dict[str, Any]]:
        """The file, what checks its rows, and what `_once` has read of it."""
        if self._closed:
            raise RecordingError(f"{self.path} is closed; open it again")
        if self._opened is None or self._opened[0] != os.getpid():
            file = open_joined(self.path, self.locking)
            self._opened = (os.getpid(), file, RowChecks(file, self.path, self.locking), {})
        return self._opened[1:]

    def _is_being_written(self) -> bool:
        return any(map(is_being_written, (self.path, *segments_folder(self.path).glob("*.h5"))))

    def __repr__(self) -> str:
        if self._closed:
            return f"<Recording {short_path(self.path)}, closed>"
        state = "complete" if self.complete else "incomplete"
        size = f"{count(len(self._index), 'episode')}, {count(len(self), 'row')}, {state}"
        lines = [f"<Recording {short_path(self.path)}: {self.spec.name}, {size}"]
        for group in self.groups:
            lines.append(f"  {group}: {', '.join(self.group_agents(group))}")
        lines += [f"  {site} × {count(self[site].axes[1][1], 'unit')}" for site in self.sites]
        if self.labels:
            lines.append(f"  labels: {', '.join(self.labels)}")
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        if self._closed:
            return facts_html(f"Recording {short_path(self.path)}", {}, "closed")
        arrays = {site: self[site] for site in self.sites}
        facts = {group: ", ".join(self.group_agents(group)) for group in self.groups}
        facts |= {
            site: f"{count(array.axes[1][1], 'unit')} of {', '.join(array.labels['agent'])}"
            for site, array in arrays.items()
        }
        state = "complete" if self.complete else "incomplete"
        size = f"{count(len(self._index), 'episode')}, {count(len(self), 'row')}, {state}"
        labels = {"labels": ", ".join(self.labels)} if self.labels else {}
        return facts_html(
            f"Recording {short_path(self.path)}", {"environment": self.spec.name, **facts, **labels}, size
        )

    def __len__(self) -> int:
        """The number of rows; one row is one recorded step."""
        return self._index.n_rows

    @property
    def complete(self) -> bool:
        """Whether it was finished; False while it is being written and after an interruption."""
        return bool(self.file.attrs["complete"])

    @property
    def experiment(self) -> Experiment | None:
        """The experiment that trained the agents; None where marlnb did not.

        Code that it names, as the import path of an environment, is not imported; `experiment.loaded()` imports it, if
        the user trusts it.
        """
        data = self._json("experiment") if self.file.attrs.get("experiment") else None
        return Experiment.from_json(data, origin=str(self.path)) if data else None

    @property
    def source(self) -> str:
        """Where the agents come from: "marlnb" or another library."""
        return str(self.file.attrs.get("source", "marlnb"))

    @property
    def spec(self) -> EnvSpec:
        """The recorded environment's spec."""
        try:
            return self._once("spec", lambda: spec_from_json(self._json("spec")))
        except RunError as error:
            raise RecordingError(f"{self.path} is damaged: {error}") from error

    @property
    def settings(self) -> dict[str, Any]:
        """The options of `record`, as plain JSON."""
        return self._json("settings")

    @property
    def checkpoint(self) -> tuple[int, str]:
        """Iteration and sha256 of the recorded checkpoint; of several, the last."""
        with reading(self.path, "its checkpoint"):
            table = self.file["checkpoints"]
            if len(table["iteration"]):
                return int(table["iteration"][-1]), table["sha256"][-1].decode()
            return int(self.file.attrs["iteration"]), str(self.file.attrs["checkpoint"])

    @property
    def checkpoints(self) -> pd.DataFrame:
        """One row per recorded checkpoint: iteration, sha256 and its rows from row_start to before row_stop."""
        import pandas as pd

        table = self.file["checkpoints"]
        columns = {name: table[name][:] for name in ("iteration", "sha256", "row_start", "row_stop")}
        columns["sha256"] = [text.decode() for text in columns["sha256"]]
        return pd.DataFrame(columns)

    @property
    def run_path(self) -> Path | None:
        """The run folder that holds the file; None where there is none."""
        folder = self.path.absolute().parent.parent
        return folder if (folder / "experiment.json").is_file() else None

    @property
    def episodes(self) -> pd.DataFrame:
        """One row per episode, by number: start and length in rows, n_steps, seed and each agent's return."""
        return self._index.frame(self.agents)

    def episode_numbers(self, selector: Selector) -> list[int]:
        """The numbers of the episodes that a number, a list, a slice or a mask (one boolean for each) selects.

        Raises:
            RecordingError: one of them does not exist.
        """
        return self._index.numbers_of(selector)

    @property
    def rows(self) -> pd.DataFrame:
        """One row per recorded step: episode, t (steps since it began) and env_id (the env that played it)."""
        import pandas as pd

        n = len(self)
        with reading(self.path, "its steps"):
            return pd.DataFrame({name: self.file[f"steps/{name}"][:n] for name in ("episode", "t", "env_id")})

    @property
    def agents(self) -> list[str]:
        """The recorded agents, group by group."""
        return list(self._agents)

    @property
    def groups(self) -> list[str]:
        """The groups with a recorded agent."""
        return list(dict.fromkeys(self._agents.values()))

    def group_agents(self, group: str) -> list[str]:
        """The recorded agents of one group, in the order of every agent axis."""
        self._check_group(group)
        return [agent for agent, its_group in self._agents.items() if its_group == group]

    @property
    def sites(self) -> list[str]:
        """Names of the recorded sites, such as `listener/actor/hidden_1`."""
        stored = self._datasets_below("activations")
        backfilled = [str(name) for name in np.atleast_1d(self.file.attrs.get("backfilled", ()))]
        in_order = [site for site in (*self.settings.get("sites", []), *backfilled) if site in stored]
        return in_order + [site for site in stored if site not in in_order]

    @property
    def labels(self) -> list[str]:
        return self._datasets_below("labels")

    def fields(self, group: str) -> list[str]:
        """The fields that `steps` takes for a group."""
        self._check_group(group)
        return self._datasets_below(f"steps/{group}")

    def __getitem__(self, site: str) -> LabelledArray:
        """A site's activations `[row, agent, unit]`.

        Raises:
            SiteError: the site is not recorded.
        """
        if site not in self._datasets_below("activations"):
            raise SiteError(f"{self.path.name}: {unknown('recorded site', site, self.sites)}")
        return self._array(f"activations/{site}")

    def __contains__(self, site: object) -> bool:
        return site in self.sites

    def steps(self, group: str, field: str) -> LabelledArray:
        """A field of a group, `[row, agent, ...]`: observation, action, logits, log_prob, value, reward, terminated,
        truncated, alive, acting or action_mask.

        Raises:
            RecordingError: there is no such group or field.
        """
        if field not in self.fields(group):
            raise RecordingError(f"{self.path.name}: {unknown(f'field of {group!r}', field, self.fields(group))}")
        return self._array(f"steps/{group}/{field}")

    def recurrent(self, group: str, part: Literal["actor", "critic"] = "actor") -> LabelledArray:
        """The recurrent state of the actor or critic that entered each step, `[row, agent, layer, unit]`.

        Raises:
            RecordingError: no such state is recorded.
        """
        self._check_group(group)
        paths = [path for path in self._datasets_below(f"recurrent/{group}") if path.startswith(f"{part}/")]
        if not paths:
            raise RecordingError(f"{self.path.name} has no recurrent state of the {part} of {group!r}")
        return self._array(f"recurrent/{group}/{paths[0]}")

    @property
    def state(self) -> LabelledArray:
        """The environment's state before each step, `[row, ...]`.

        Raises:
            RecordingError: the environment has no state.
        """
        if "state" not in self.file["steps"]:
            raise RecordingError(f"{self.path.name} has no state, because {self.spec.name} has none")
        return self._array("steps/state")

    def label(self, name: str) -> LabelledArray:
        """A label `[row]` or `[row, agent]`.

        Raises:
            RecordingError: the label is not recorded.
        """
        if name not in self.labels:
            raise RecordingError(f"{self.path.name}: {unknown('label', name, self.labels)}")
        return self._array(f"labels/{name}")

    def classes(self, label: str) -> list[str]:
        """The names of a label's values 0, 1, ...; empty for a quantity and for unnamed values."""
        return self._names(self.label(label).path, "classes")

    def feature_names(self, group: str) -> list[str]:
        """The names of a group's observation features; empty where the environment states none."""
        return self._names(self.steps(group, "observation").path, "names")

    def frame(self, *, episode: int, t: int) -> np.ndarray:
        """The image `[height, width, channel]` uint8 rendered at one step.

        Raises:
            RecordingError: no image was recorded at this step.
        """
        if "frames" not in self.file:
            raise RecordingError(f"{self.path.name} has no frames; record with frames=True")
        row = self._index.rows(np.arange(len(self)), {"episode": episode, "t": t}, self._times)
        with reading(self.path, f"the frame at t={t} of episode {episode}"):
            indices = np.flatnonzero(np.isin(self.file["frames/row"][:], row))
            if not len(indices):
                raise RecordingError(f"{self.path.name}: no frame was recorded at t={t} of episode {episode}")
            return np.asarray(self.file["frames/image"][int(indices[0])])

    def _array(self, path: str) -> LabelledArray:
        dataset = self.file[path]
        dims = axis_names(dataset)[1:]
        group = dataset.attrs.get("group", "")
        agents = self._names(path, "agents") or (self.group_agents(group) if group else [])
        names = {dims[-1]: self._names(path, "names")} if dims else {}
        return LabelledArray(
            path=path,
            open_dataset=lambda: self.file[path],
            find_rows=lambda rows, selectors: self._index.rows(rows, selectors, self._times),
            axes=tuple(zip(dims, dataset.shape[1:])),
            labels={**names, **({"agent": agents} if agents else {})},
            rows=np.arange(len(self)),
            dtype_stored=BFLOAT16 if is_bfloat16(dataset) else dataset.dtype.name,
            picks=tuple(slice(None) for _ in dims),
            check_box=lambda box: self._open()[1].check(path, box),
        )

    @property
    def _agents(self) -> dict[str, str]:
        """The group of each recorded agent."""
        names, groups = self._once("agents", lambda: [self.file[f"agents/{key}"][:] for key in ("name", "group")])
        return {name.decode(): group.decode() for name, group in zip(names, groups)}

    def _datasets_below(self, group: str) -> list[str]:
        return list(self._once(group, lambda: datasets_below(self.file, group)))

    def _once(self, key: str, read: Callable[[], T]) -> T:
        """What stays the same while the file is open, which is read only once."""
        known = self._open()[2]
        if key not in known:
            known[key] = read()
        value: T = known[key]
        return value

    def _json(self, attribute: str) -> dict[str, Any]:
        with reading(self.path, f"its attribute {attribute!r}"):
            return dict(json.loads(self.file.attrs[attribute]))

    def _times(self) -> np.ndarray:
        with reading(self.path, "steps/t"):
            return np.asarray(self.file["steps/t"][: len(self)])

    def _names(self, path: str, attribute: str) -> list[str]:
        return [str(name) for name in self.file[path].attrs.get(attribute, ())]

    def _check_group(self, group: str) -> None:
        if group not in self.groups:
            raise RecordingError(f"{self.path.name}: {unknown('recorded group', group, self.groups)}")
