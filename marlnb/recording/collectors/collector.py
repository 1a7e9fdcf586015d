"""record_collector: records what a torchrl collector gathers, with the hidden states behind it.

Hidden states are recomputed from the gathered observations, batch by batch, with the same weights. Nothing hooks into
the collector. So neither its own test call nor a loss that runs the policy can add rows, and it does not matter in
which process the policy acted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor

from marlnb.config import accepts_options, resolve_config
from marlnb.errors import RecordingError
from marlnb.models.hooks.capture import all_sites
from marlnb.models.hooks.sites import Site, match_sites
from marlnb.models.policies.policy import Policy
from marlnb.paths import expanded
from marlnb.recording.capture.config import ActivationOptions
from marlnb.recording.capture.provenance import agent_columns, source_attributes
from marlnb.recording.capture.recompute import recompute
from marlnb.recording.capture.sources import Selection, field_of_rows, recurrent_site
from marlnb.recording.collectors.collector_batch import GroupBatch, done_flag, entering_state
from marlnb.recording.file.layout import Field, check_float16, stored_bytes
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.writer import RecordingWriter
from marlnb.training.collect.threads import torch_threads
from marlnb.training.policies.agents import Agents
from marlnb.training.runs.run import Origin

STEP_COLUMNS = ("steps/t", "steps/env_id", "steps/episode")


@accepts_options(ActivationOptions)
def record_collector(
    collector: Iterable[TensorDictBase],
    agents: Agents,
    path: str | os.PathLike[str],
    config: ActivationOptions | None = None,
    *,
    group_map: Mapping[str, str] | None = None,
    frames: int | None = None,
    **overrides: Any,
) -> Recording:
    """Records everything that a collector gathers. Every frame is a row; episodes end where the frames say so.

    Where agents learn between batches, use `CollectorRecorder` and add each batch before the weights change. Recurrent
    critics have no values, because frames do not hold their states.

    Args:
        collector: an iterator of tensordicts `[env, time]` or `[time]`, as torchrl's collectors are.
        agents: the policies that act in it, as `agents_from_torchrl` reads them.
        path: the new file.
        config: the options; None: the defaults.
        group_map: {group of `agents`: its key in the tensordict}, where they differ.
        frames: stop after so many frames.
        overrides: options that replace those of `config`.
    Raises:
        RecordingError: the file exists; nothing was gathered; frames have no observations, actions or ends;
            trajectories were split and padded; or activations exceed float16.
        SiteError: a pattern matches no site.
    """
    with CollectorRecorder(agents, path, config, group_map=group_map, **overrides) as recorder:
        for batch in collector:
            recorder.add(batch)
            if frames is not None and recorder.frames >= frames:
                break
        if not recorder.frames:
            raise RecordingError("the collector gathered nothing; one that was iterated or shut down cannot be reused")
    return Recording.open(path)


class CollectorRecorder:
    """A recording to which batches of frames are added; see `record_collector` for the arguments.

    An episode's rows are written when it ends. Episodes that are unfinished when the recorder is closed are written as
    they are and marked unfinished. `Recording.checkpoints` numbers the weights of the batches 0, 1, 2, ... and assigns
    each row to those that played it.

    Attributes:
        frames: added so far.
    """

    def __init__(
        self,
        agents: Agents,
        path: str | os.PathLike[str],
        config: ActivationOptions | None = None,
        *,
        group_map: Mapping[str, str] | None = None,
        expected_rows: int = 32768,
        **overrides: Any,
    ) -> None:
        self.config = resolve_config(ActivationOptions, config, overrides)
        self.agents, self.path = agents, expanded(path)
        if self.path.exists():
            raise RecordingError(f"{self.path} already exists; give the recording another name")
        self.policies: dict[str, Policy] = agents.policies()
        sites = self.config.sites
        self.sites: list[Site] = match_sites(all_sites(self.policies), sites) if sites else []
        self.groups = [GroupBatch(group, (group_map or {}).get(group.name)) for group in agents.spec.groups]
        self.expected_rows, self.frames = expected_rows, 0
        self._writer: RecordingWriter | None = None
        self._fields: list[Field] = []
        # by trajectory, the rows of each batch and the weights that played it
        self._unfinished: dict[int, list[tuple[Origin, dict[str, Tensor]]]] = {}
        self._env_index: dict[int, int] = {}  # by trajectory
        self._n_episodes = 0
        self._weight_numbers: dict[str, int] = {}  # by sha256
        self._origin = agents.origin()

    def add(self, batch: TensorDictBase) -> None:
        """Adds a batch `[env, time]` or `[time]`. Hidden states are those of the current weights."""
        if "collector" in set(batch.keys()) and "mask" in set(batch["collector"].keys()):
            raise RecordingError("trajectories were split and padded; collect with split_trajs=False")
        batch = batch.unsqueeze(0) if batch.ndim == 1 else batch
        if batch.ndim != 2:
            raise RecordingError(f"a batch must be [env, time] or [time]; got {list(batch.batch_size)}")
        sha256 = self.agents.origin().sha256
        self._origin = Origin(self._weight_numbers.setdefault(sha256, len(self._weight_numbers)), sha256)
        rows = self._rows(batch)
        if self._writer is None:
            self._open(rows)
        done = done_flag(batch, self.groups)
        trajectories = batch.get(("collector", "traj_ids"), None)
        for env_index in range(len(batch)):
            of_env = {name: tensor[env_index] for name, tensor in rows.items()}
            self._split(env_index, of_env, done[env_index], trajectories)
        self.frames += batch.numel()
        if self._writer is not None:
            self._writer.flush_if_due()

    def close(self, *, complete: bool = True) -> None:
        """Writes the rest and closes the file."""
        if self._writer is None:
            return
        for trajectory in list(self._unfinished):
            self._write_episode(trajectory, finished=False)
        self._writer.close(complete=complete)
        self._writer = None

    def __enter__(self) -> CollectorRecorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self.close(complete=kind is None)

    @torch.no_grad()
    @torch_threads(1)
    def _rows(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Every field except `STEP_COLUMNS`, `[env, time, ...]`."""
        shape = tuple(batch.batch_size)
        gathered: dict[str, Tensor] = {}
        for group in self.groups:
            gathered |= group.read(batch)
        observations = {g.spec.name: gathered[f"steps/{g.spec.name}/observation"].flatten(0, 1) for g in self.groups}
        state = batch.get("state").flatten(0, 1) if "state" in set(batch.keys()) else None
        computed: dict[str, Tensor] = {}  # [row, ...]
        for group in self.groups:
            name, policy = group.spec.name, self.policies[group.spec.name]
            mask = gathered.get(f"steps/{name}/action_mask")
            entering = entering_state(policy, batch)
            logits, _ = policy.logits(observations[name], recurrent=entering)
            distribution = policy.distribution
            assert distribution is not None
            masked = distribution.mask(logits, None if mask is None else mask.flatten(0, 1))
            computed[f"steps/{name}/logits"] = masked
            sites = [site.name for site in self.sites if site.name.startswith(f"{name}/")]
            if sites:
                activations = recompute(policy, sites, observations, recurrent=entering, state=state)
                computed |= {f"activations/{site}": tensor for site, tensor in activations.items()}
            if entering is not None:
                computed[f"recurrent/{name}/{recurrent_site(policy, 'actor')}"] = entering
            if self.config.values and policy.has_critic and policy.critic_recurrent_shape is None:
                computed[f"steps/{name}/value"] = policy.value(observations, state=state)[0]
        if self.config.dtype == "float16":
            check_float16({name: x for name, x in computed.items() if name.startswith(("activations/", "recurrent/"))})
        return gathered | {name: tensor.unflatten(0, shape) for name, tensor in computed.items()}

    def _open(self, rows: Mapping[str, Tensor]) -> None:
        spec = self.agents.spec
        self._fields = [self._field(name, tensor) for name, tensor in rows.items()]
        step_fields = [Field(name, (), (), "int64") for name in STEP_COLUMNS]
        columns = agent_columns(
            self.agents, spec, [Selection(group, tuple(range(group.n_agents))) for group in spec.groups]
        )
        fields = [*self._fields, *step_fields]
        attributes = source_attributes(self.agents, spec, self._origin, self._settings(), seed=-1)
        self._writer = RecordingWriter(self.path, fields, attributes, columns, expected_rows=self.expected_rows)
        named = [group for group in spec.groups if group.observation.names]
        self._writer.describe({f"steps/{g.name}/observation": {"names": list(g.observation.names)} for g in named})

    def _field(self, path: str, tensor: Tensor) -> Field:
        dtype = str(tensor.dtype).removeprefix("torch.")
        return field_of_rows(path, tuple(tensor.shape[2:]), dtype, self.agents.spec, self.sites, self.config.dtype)

    def _settings(self) -> dict[str, Any]:
        return {
            "env": self.agents.spec.name,
            "checkpoint": self._origin.sha256,
            "sites": [site.name for site in self.sites],
            "agents": list(self.agents.spec.agents),
            "labels": [],
            "every": 1,
            "dtype": self.config.dtype,
            "explore": True,
            "collector": True,
        }

    def _split(self, env_index: int, rows: Mapping[str, Tensor], done: Tensor, trajectories: Tensor | None) -> None:
        """Splits an env's frames `[time, ...]` where episodes end, and continues the one that crossed the last batch.

        Args:
            trajectories: torchrl's `traj_ids`; where it is None, the env index identifies the trajectory.
        """
        ids = None if trajectories is None else trajectories[env_index].reshape(-1)
        start = 0
        for t in range(len(done)):
            is_last = t + 1 == len(done)
            changes = ids is not None and not is_last and bool(ids[t + 1] != ids[t])
            if not (bool(done[t]) or changes or is_last):
                continue
            trajectory = env_index if ids is None else int(ids[t])
            part = {name: tensor[start : t + 1] for name, tensor in rows.items()}
            self._unfinished.setdefault(trajectory, []).append((self._origin, part))
            self._env_index[trajectory] = env_index
            start = t + 1
            if bool(done[t]):
                self._write_episode(trajectory, finished=True)

    def _write_episode(self, trajectory: int, *, finished: bool) -> None:
        assert self._writer is not None
        parts = self._unfinished.pop(trajectory)
        rewards = [torch.cat([part[f"steps/{group.spec.name}/reward"] for _, part in parts]) for group in self.groups]
        n_rows = len(rewards[0])
        returns = np.concatenate([reward.double().sum(0).cpu().numpy() for reward in rewards])
        entry = {
            "episode": self._n_episodes,
            "start": self._writer.rows,
            "length": n_rows,
            "n_steps": n_rows,
            "seed": -1,
        }
        columns = {name: np.array([value]) for name, value in {**entry, "finished": finished}.items()}
        self._writer.add_episodes(columns, returns[None])
        env_index, first = self._env_index.pop(trajectory), 0
        for origin, part in parts:
            stored = [stored_bytes(part[field.path], field) for field in self._fields]
            t = np.arange(first, first + len(stored[0]))
            self._writer.enter_checkpoint(origin.iteration, origin.sha256)
            numbers = np.full(len(t), env_index), np.full(len(t), self._n_episodes)
            self._writer.append([x[None] for x in (*stored, t, *numbers)])
            first += len(t)
        self._n_episodes += 1
