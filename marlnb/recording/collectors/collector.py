"""record_collector: what a torchrl collector gathers, and the hidden states behind it, in a recording like any other.

Hidden states are computed from the gathered observations, batch by batch, by the same weights: nothing hooks into the
collector, so neither the call that it makes when it is built nor a loss that runs the policy can slip into the file,
and it does not matter in which process the policy acted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor

import marlnb
from marlnb.errors import RecordingError, unknown
from marlnb.models.hooks.capture import all_sites
from marlnb.models.hooks.sites import Site, match_sites
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.recompute import recompute
from marlnb.recording.capture.sources import observation_dims, recurrent_site
from marlnb.recording.collectors.collector_batch import GroupFrames, entering_state, root_flag
from marlnb.recording.file.layout import BFLOAT16, DTYPES, FORMAT, VERSION, Field
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.writer import RecordingWriter
from marlnb.training.collect.threads import torch_threads
from marlnb.training.policies.agents import Agents
from marlnb.training.runs.spec_file import spec_to_json

COMMON = ("steps/t", "steps/env_id", "steps/episode")


def record_collector(
    collector: Iterable[TensorDictBase],
    agents: Agents,
    path: str | os.PathLike[str],
    *,
    sites: str | Sequence[str] = "*/actor/*",
    dtype: str = "float32",
    values: bool = True,
    group_map: Mapping[str, str] | None = None,
    frames: int | None = None,
) -> Recording:
    """Records all that a collector gathers: every frame is a row, episodes are cut where frames say that they end.

    Where agents learn between batches, use `CollectorRecorder`, and add each batch before the weights change.

    Args:
        collector: an iterator of tensordicts `[env, time]` or `[time]`, as torchrl's collectors are.
        agents: the policies that act in it, as `agents_from_torchrl` reads them.
        path: the file, which must not be there.
        sites: globs over site names; values: also run the critics, where there are any.
        dtype: float32, float16 or bfloat16, of activations.
        group_map: {the agents' group: its key in the tensordict}, where they differ.
        frames: stop after so many.
    Raises:
        RecordingError: the file is there already; nothing was gathered; frames without observations, actions or ends;
            trajectories that were split and padded; activations too large for float16.
        SiteError: a pattern that matches no site.
    """
    with CollectorRecorder(agents, path, sites=sites, dtype=dtype, values=values, group_map=group_map) as recorder:
        for batch in collector:
            recorder.add(batch)
            if frames is not None and recorder.frames >= frames:
                break
        if not recorder.frames:
            raise RecordingError("the collector gathered nothing (one that has been iterated or shut down is spent)")
    return Recording.open(path)


class CollectorRecorder:
    """A recording that batches of frames are added to; see `record_collector`.

    Attributes:
        frames: added so far. Rows of an episode are written when it ends; those that have not ended when the block
            does are written as they are, marked unfinished.
    """

    def __init__(
        self,
        agents: Agents,
        path: str | os.PathLike[str],
        *,
        sites: str | Sequence[str] = "*/actor/*",
        dtype: str = "float32",
        values: bool = True,
        group_map: Mapping[str, str] | None = None,
        expected_rows: int = 32768,
    ) -> None:
        if dtype not in DTYPES:
            raise RecordingError(unknown("dtype", dtype, DTYPES))
        self.agents, self.path, self.dtype, self.values = agents, Path(path).expanduser(), dtype, values
        if self.path.exists():
            raise RecordingError(f"{self.path} is there already; give the recording another name")
        self.policies: dict[str, Policy] = agents.policies()
        self.sites: list[Site] = match_sites(all_sites(self.policies), sites) if sites else []
        self.groups = [GroupFrames(group, (group_map or {}).get(group.name)) for group in agents.spec.groups]
        self.expected_rows, self.frames = expected_rows, 0
        self._writer: RecordingWriter | None = None
        self._fields: list[Field] = []
        self._pending: dict[int, list[dict[str, Tensor]]] = {}
        self._copy: dict[int, int] = {}
        self._episodes = 0
        self._origin = agents.origin()

    def add(self, batch: TensorDictBase) -> None:
        """Adds a batch `[env, time]` or `[time]`; hidden states are those of the weights as they are now."""
        if "collector" in set(batch.keys()) and "mask" in set(batch["collector"].keys()):
            raise RecordingError("trajectories were split and padded; collect with split_trajs=False")
        batch = batch.unsqueeze(0) if batch.ndim == 1 else batch
        if batch.ndim != 2:
            raise RecordingError(f"a batch must be [env, time] or [time]; got {list(batch.batch_size)}")
        self._origin = self.agents.origin()
        rows = self._rows(batch)
        if self._writer is None:
            self._open(rows)
        done = root_flag(batch, "done", self.groups)
        trajectories = batch.get(("collector", "traj_ids"), None)
        for copy in range(len(batch)):
            self._cut(copy, {name: tensor[copy] for name, tensor in rows.items()}, done[copy], trajectories)
        self.frames += batch.numel()
        if self._writer is not None:
            self._writer.flush_if_due()

    def close(self, *, complete: bool = True) -> None:
        """Writes what is left and closes the file."""
        if self._writer is None:
            return
        for episode in list(self._pending):
            self._finish(episode, finished=False)
        self._writer.close(complete=complete)
        self._writer = None

    def __enter__(self) -> CollectorRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(complete=kind is None)

    @torch.no_grad()
    @torch_threads(1)
    def _rows(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Every field but the common ones, `[env, time, ...]`."""
        shape = tuple(batch.batch_size)
        found: dict[str, Tensor] = {}
        for group in self.groups:
            found |= group.read(batch)
        seen = {g.spec.name: found[f"steps/{g.spec.name}/observation"].flatten(0, 1) for g in self.groups}
        state = batch.get("state").flatten(0, 1) if "state" in set(batch.keys()) else None
        flat: dict[str, Tensor] = {}
        for group in self.groups:
            name, policy = group.spec.name, self.policies[group.spec.name]
            mask = found.get(f"steps/{name}/action_mask")
            entering = entering_state(policy, batch)
            logits, _ = policy.logits(seen[name], recurrent=entering)
            distribution = policy.distribution
            assert distribution is not None
            flat[f"steps/{name}/logits"] = distribution.mask(logits, None if mask is None else mask.flatten(0, 1))
            own = [site.name for site in self.sites if site.name.startswith(f"{name}/")]
            if own:
                activations = recompute(policy, own, seen, recurrent=entering, state=state)
                flat |= {f"activations/{site}": tensor for site, tensor in activations.items()}
            if entering is not None:
                flat[f"recurrent/{name}/{recurrent_site(policy, 'actor')}"] = entering
            if self.values and policy.has_critic:
                flat[f"steps/{name}/value"] = policy.value(seen, state=state)[0]
        self._check_halves(flat)
        return found | {name: tensor.unflatten(0, shape) for name, tensor in flat.items()}

    def _check_halves(self, rows: Mapping[str, Tensor]) -> None:
        """Raises RecordingError for activations that float16 would turn into infinities."""
        largest = torch.finfo(torch.float16).max
        for name, tensor in rows.items():
            if self.dtype == "float16" and name.startswith(("activations/", "recurrent/")):
                size = tensor.abs().nan_to_num(0, 0)
                if bool((size > largest).any()):
                    raise RecordingError(
                        f"{name} reaches {float(size.max()):.3g}, and float16 holds no more than {largest:g}: "
                        "record with dtype='float32'"
                    )

    def _open(self, rows: Mapping[str, Tensor]) -> None:
        self._fields = [self._field(name, tensor) for name, tensor in rows.items()]
        common = [Field(name, (), (), "int64") for name in COMMON]
        members = [(g, agent) for g in self.agents.spec.groups for agent in g.agents]
        columns: dict[str, list[Any]] = {
            "id": [self.agents.spec.agents.index(agent) for _, agent in members],
            "name": [agent for _, agent in members],
            "group": [g.name for g, _ in members],
            "policy_index": [self.agents.policy_index(g)[g.agents.index(agent)] for g, agent in members],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = RecordingWriter(
            self.path, [*self._fields, *common], self._attributes(), columns, expected_rows=self.expected_rows
        )
        names = {f"steps/{g.name}/observation": {"names": list(g.observation.names)} for g in self.agents.spec.groups}
        self._writer.describe({path: told for path, told in names.items() if told["names"]})

    def _field(self, name: str, tensor: Tensor) -> Field:
        shape = tuple(tensor.shape[2:])
        kind = str(tensor.dtype).removeprefix("torch.")
        top, _, rest = name.partition("/")
        group = rest.split("/")[0]
        if top == "activations":
            site = next(site for site in self.sites if site.name == rest)
            members = self.agents.spec.group(group).agents
            whose = () if site.agents is None else tuple(members[index] for index in site.agents)
            return Field(name, ("agent", "unit"), shape, self.dtype, group, whose)
        if top == "recurrent":
            return Field(name, ("agent", "layer", "unit"), shape, self.dtype, group)
        last = {"action": "component", "logits": "parameter", "action_mask": "choice"}.get(rest.split("/")[-1])
        dims = ("agent", last) if last and len(shape) == 2 else observation_dims(shape[1:])[: len(shape)]
        return Field(name, dims, shape, kind, group)

    def _attributes(self) -> dict[str, Any]:
        origin = self._origin
        settings = {
            "env": self.agents.spec.name,
            "checkpoint": origin.sha256,
            "sites": [site.name for site in self.sites],
            "agents": list(self.agents.spec.agents),
            "labels": [],
            "every": 1,
            "dtype": self.dtype,
            "explore": True,
            "collector": True,
        }
        return {
            "format": FORMAT,
            "version": VERSION,
            "experiment": "",
            "source": self.agents.source,
            "spec": json.dumps(spec_to_json(self.agents.spec)),
            "settings": json.dumps(settings, sort_keys=True),
            "checkpoint": origin.sha256,
            "iteration": origin.iteration,
            "code_version": marlnb.__version__,
            "seed": -1,
            "dtype": self.dtype,
            "every": 1,
        }

    def _cut(self, copy: int, rows: Mapping[str, Tensor], done: Tensor, trajectories: Tensor | None) -> None:
        """Takes a copy's frames apart where an episode ends, and goes on with the one that crossed the last batch."""
        ids = None if trajectories is None else trajectories[copy].reshape(-1)
        begins = 0
        for t in range(len(done)):
            jumps = ids is not None and t + 1 < len(done) and bool(ids[t + 1] != ids[t])
            if not (bool(done[t]) or jumps or t + 1 == len(done)):
                continue
            key = copy if ids is None else int(ids[t])
            self._pending.setdefault(key, []).append({name: x[begins : t + 1] for name, x in rows.items()})
            self._copy[key] = copy
            begins = t + 1
            if bool(done[t]):
                self._finish(key, finished=True)

    def _finish(self, key: int, *, finished: bool) -> None:
        """Appends the rows of an episode."""
        assert self._writer is not None
        parts = self._pending.pop(key)
        rows = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        n = len(next(iter(rows.values())))
        self._writer.enter_checkpoint(self._origin.iteration, self._origin.sha256)
        returns = np.concatenate(
            [rows[f"steps/{g.spec.name}/reward"].double().sum(0).cpu().numpy() for g in self.groups]
        )
        columns = {
            "episode": np.array([self._episodes]),
            "start": np.array([self._writer.rows]),
            "length": np.array([n]),
            "n_steps": np.array([n]),
            "seed": np.array([-1]),
            "finished": np.array([finished]),
        }
        stored = [_stored(rows[field.path].cpu(), field)[None] for field in self._fields]
        common = [np.arange(n), np.full(n, self._copy.pop(key)), np.full(n, self._episodes)]
        self._writer.add_episodes(columns, returns[None])
        self._writer.append([*stored, *(column[None].astype(np.int64) for column in common)])
        self._episodes += 1


def _stored(values: Tensor, field: Field) -> np.ndarray:
    """As the field's bytes are written; of bfloat16, the bits."""
    if field.dtype == BFLOAT16:
        return values.bfloat16().view(torch.int16).numpy()
    return values.numpy().astype(field.stored_dtype)
