"""backfill: adds sites to a recording, computed from the recorded observations and recurrent states."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor

from marlnb.disk import left_behind, temporary_of, writing
from marlnb.errors import RecordingError, RecordingWriteError
from marlnb.models.hooks.capture import all_sites
from marlnb.models.hooks.sites import Site, match_sites
from marlnb.models.policies.policy import Policy, device_of, eval_mode
from marlnb.recording.capture.preparation import select_agents
from marlnb.recording.capture.recompute import in_critic, recompute
from marlnb.recording.capture.sources import Pick, take_agents
from marlnb.recording.file.array import LabelledArray, expand_agents
from marlnb.recording.file.checksums import chunk_ranges
from marlnb.recording.file.inspection import inspect, remember
from marlnb.recording.file.journal import JournaledFile
from marlnb.recording.file.layout import (
    BFLOAT16,
    Field,
    check_float16,
    create_dataset,
    datasets_below,
    hdf5_type,
    stored_bytes,
    write_rows,
)
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.recording.file.opening import Locking
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.segments import join, segment_paths
from marlnb.recording.file.writer import SPARE_BYTES
from marlnb.recording.tools.recorded_policies import MOVE_REMEDY, origin_at, policies_of, source_of
from marlnb.training.collect.threads import torch_threads
from marlnb.training.runs.run import Origin

BATCH_ROWS = 2048
WEIGHTS_TOLERANCE = 1e-4  # of logits and values, relative to the largest; more is a sign of other weights
HALF_TOLERANCE = 2**-5  # where they come from recurrent states of 16 bits
PoliciesByOrigin = Mapping[Origin, Mapping[str, Policy]]


def backfill(
    recording: RecordingLike, sites: str | Sequence[str], *, policies: Mapping[str, Policy] | None = None
) -> Recording:
    """Adds sites to a recording, as if they had been recorded; their datasets have the attribute `filled` "backfilled".

    `recording.settings` stays as it is, so that `record(..., exist="open")` with the same options returns the file.
    The policies of the checkpoint that made each row compute them from the row's observations and entering recurrent
    states, within 1e-5 of what fired (within the stored precision, where that is half). The file changes in one commit:
    a kill leaves it unchanged.

    Args:
        sites: globs over site names, of actors and critics.
        policies: by group, where the file is not in the run folder that made it; of one checkpoint. They are compared
            by the logits of actors and the values of critics, where those were recorded.
    Raises:
        SiteError: a glob matches nothing.
        RecordingError: the sites are already recorded; the recording was made with edits; an input that they need was
            not recorded; float16 cannot hold a value; or the weights differ from those that made the recording.
    """
    recording = opened_recording(recording)
    if not len(recording):
        raise RecordingError(f"{recording.path.name} has no rows")
    paths = segment_paths(recording.file, recording.path) or [recording.path]
    for path in paths:
        with writing(path, kind=RecordingWriteError, saved="it is unchanged"):
            for left in left_behind(path, "filling"):  # also of one that was killed after its commit
                left.unlink(missing_ok=True)
    by_origin = _policies_by_origin(recording, policies)
    first = next(iter(by_origin.values()))
    matches = match_sites(all_sites(first), sites)
    new = [site for site in matches if site.name not in recording and site.group in recording.groups]
    if not new:
        raise RecordingError(f"{recording.path.name} already has all of {[site.name for site in matches]}")
    if recording.settings.get("edits"):
        raise RecordingError(f"{recording.path.name} was recorded with edits in force, so its sites cannot be computed")
    for site in new:
        _check_inputs(recording, first[site.group], site)
    if policies is not None:
        _check_given(recording, policies, new)
    is_joined = paths != [recording.path]
    for path in paths:
        recording.release()
        with writing(path, kind=RecordingWriteError, saved="it is unchanged"):
            with Recording.open(path, locking=recording.locking) as part:
                _fill(part, new, by_origin)
    if is_joined:
        _join_again(recording, paths)
    return recording


def _policies_by_origin(recording: Recording, policies: Mapping[str, Policy] | None) -> PoliciesByOrigin:
    """By checkpoint, the policies that made its rows."""
    table = recording.checkpoints
    starts = table["row_start"][table["row_stop"] > table["row_start"]]
    origins = list(dict.fromkeys(origin_at(recording, int(row)) for row in starts))
    if policies is not None:
        if len(origins) > 1:
            raise RecordingError(
                f"{recording.path.name} spans {len(origins)} checkpoints, but policies= has those of one only"
            )
        return {origins[0]: policies}
    remedy = f"{MOVE_REMEDY}, or in Python give policies= of backfill, by group"
    source = source_of(recording, None, remedy=remedy)
    return {origin: policies_of(recording, source, origin) for origin in origins}


def _check_inputs(recording: Recording, policy: Policy, site: Site) -> None:
    """Raises RecordingError where an input of the site was not recorded."""
    group, spec = policy.group.name, recording.spec
    problem = f"{site.name} cannot be computed from {recording.path.name}"
    is_critic = in_critic(site.name)
    reads = policy.reads(critic=is_critic)
    reads_all = reads == "all"
    needed = list(spec.group_names) if reads_all else [group]
    agents = [agent for name in needed for agent in spec.group(name).agents]
    missing = [agent for agent in agents if agent not in recording.agents]
    if missing and reads != "agent":
        raise RecordingError(f"{problem}: it needs the observations of {missing}, which were not recorded")
    lacking = [name for name in needed if name not in recording.groups or "observation" not in recording.fields(name)]
    if lacking:
        raise RecordingError(f"{problem}: it needs the observations of {lacking}, which were not recorded")
    part, shape = ("critic", policy.critic_recurrent_shape) if is_critic else ("actor", policy.recurrent_shape)
    recorded = datasets_below(recording.file, f"recurrent/{group}")
    if shape is not None and not any(name.startswith(f"{part}/") for name in recorded):
        raise RecordingError(f"{problem}: it needs the {part}'s recurrent states, which were not recorded")
    if reads_all and spec.state_shape is not None and "state" not in recording.file["steps"]:
        raise RecordingError(f"{problem}: it needs the environment's state, which was not recorded")


def _check_given(recording: Recording, policies: Mapping[str, Policy], sites: Sequence[Site]) -> None:
    """Raises RecordingError where policies compute other logits or values than those of the first rows."""
    rows = np.arange(min(len(recording), BATCH_ROWS))
    is_half = str(recording.file.attrs["dtype"]) != "float32"
    for group, is_critic in dict.fromkeys((site.group, in_critic(site.name)) for site in sites):
        policy, field = policies[group], "value" if is_critic else "logits"
        if field not in recording.fields(group):
            continue
        names = [site.name for site in sites if (site.group, in_critic(site.name)) == (group, is_critic)]
        inputs = _inputs(recording, policy, rows, names)
        agents = recording.spec.group(group).agents
        recorded = recording.steps(group, field).read_rows(rows)
        computed = _output(policy, inputs, is_critic=is_critic)[:, [*map(agents.index, recording.group_agents(group))]]
        is_allowed = recorded > np.finfo(recorded.dtype).min  # the logits of forbidden choices are the minimum
        difference = np.max(np.abs(computed - recorded), initial=0.0, where=is_allowed)
        has_half_states = is_half and not {"recurrent", "critic_recurrent"}.isdisjoint(inputs)
        tolerance = HALF_TOLERANCE if has_half_states else WEIGHTS_TOLERANCE
        if difference > tolerance * np.max(np.abs(recorded), initial=1.0, where=is_allowed):
            raise RecordingError(
                f"{recording.path.name} was made by other weights than those of policies=: {field} of {group!r} differ "
                f"by up to {difference:.2g} from the recorded ones; give the policies that made the recording"
            )


@torch.no_grad()
@torch_threads(1)
def _output(policy: Policy, inputs: Mapping[str, Any], *, is_critic: bool) -> np.ndarray:
    """Values `[row, agent]` or logits `[row, agent, parameter]` for `_inputs`."""
    device = device_of(policy)
    observations = {name: observation.to(device) for name, observation in inputs["observations"].items()}
    state, recurrent, critic_recurrent = (
        None if inputs.get(name) is None else inputs[name].to(device)
        for name in ("state", "recurrent", "critic_recurrent")
    )
    with eval_mode([policy]):
        if is_critic:
            output = policy.value(observations, state=state, recurrent=critic_recurrent)[0]
        else:
            output = policy.logits(observations[policy.group.name], recurrent=recurrent)[0]
    return output.cpu().numpy()


def _fill(part: Recording, sites: Sequence[Site], by_origin: PoliciesByOrigin) -> None:
    """Computes the sites into a temporary file, then copies the datasets over in one commit."""
    temporary = temporary_of(part.path, "filling")
    selections = {selection.group.name: selection for selection in select_agents(part.spec, part.agents)}
    dtype = str(part.file.attrs["dtype"])
    columns = {site.name: selections[site.group].field_of(site, dtype) for site in sites}
    try:
        # HDF5 ends the process where it cannot write to a path
        unchanged = f"{part.path} is unchanged"
        with (
            writing(temporary, kind=RecordingWriteError, saved=unchanged),
            JournaledFile(temporary, locking=False) as storage,
            h5py.File(storage, "w") as file,
        ):
            for field, _ in columns.values():
                dataset = create_dataset(file, field, field.chunk_rows(BATCH_ROWS))
                dataset.resize(len(part), axis=0)
                dataset.attrs["filled"] = "backfilled"
            for start in storage.until_refused(range(0, len(part), BATCH_ROWS)):
                _fill_rows(part, columns, by_origin, file, start)
        backfilled = [*np.atleast_1d(part.file.attrs.get("backfilled", ())), *columns]
        part.close()
        paths = [field.path for field, _ in columns.values()]
        _add_datasets(part.path, temporary, paths, {"backfilled": backfilled}, part.locking)
    finally:
        temporary.unlink(missing_ok=True)


@torch_threads(1)
def _fill_rows(
    part: Recording,
    columns: Mapping[str, tuple[Field, Pick]],
    by_origin: PoliciesByOrigin,
    file: h5py.File,
    start: int,
) -> None:
    """Fills at most `BATCH_ROWS` rows from `start` on."""
    last = min(start + BATCH_ROWS, len(part)) - 1
    edges = sorted({start, *(int(row) for row in part.checkpoints["row_start"] if start < row <= last), last + 1})
    for first, stop in itertools.pairwise(edges):  # the rows of one checkpoint
        policies, rows = by_origin[origin_at(part, first)], np.arange(first, stop)
        for group in dict.fromkeys(field.group for field, _ in columns.values()):
            names = [name for name, (field, _) in columns.items() if field.group == group]
            activations = recompute(policies[group], names, **_inputs(part, policies[group], rows, names))
            for name in names:
                field, pick = columns[name]
                values = take_agents(activations[name], pick)
                if field.dtype == "float16":
                    check_float16({name: values})
                bits = hdf5_type(BFLOAT16) if field.dtype == BFLOAT16 else None
                write_rows(file[field.path], first, stored_bytes(values, field), bits)


def _inputs(part: Recording, policy: Policy, rows: np.ndarray, sites: Sequence[str]) -> dict[str, Any]:
    """The arguments of `recompute` for these rows."""
    group, with_critic = policy.group.name, any(map(in_critic, sites))
    reads_all = with_critic and policy.critic_reads == "all"
    groups = part.spec.group_names if reads_all else (group,)
    inputs: dict[str, Any] = {
        "observations": {name: _all_agents(part, part.steps(name, "observation"), name, rows) for name in groups}
    }
    if policy.recurrent_shape is not None and not all(map(in_critic, sites)):
        inputs["recurrent"] = _all_agents(part, part.recurrent(group, "actor"), group, rows)
    if policy.critic_recurrent_shape is not None and with_critic:
        inputs["critic_recurrent"] = _all_agents(part, part.recurrent(group, "critic"), group, rows)
    if reads_all and part.spec.state_shape is not None:
        inputs["state"] = torch.from_numpy(part.state.read_rows(rows))
    return inputs


def _all_agents(part: Recording, array: LabelledArray, group: str, rows: np.ndarray) -> Tensor:
    """`[row, agent, ...]` for all agents of the group, zero for those that were not recorded."""
    values = expand_agents(array.read_rows(rows), part.group_agents(group), part.spec.group(group).agents)
    return torch.from_numpy(values)


def _add_datasets(
    path: Path, temporary: Path, datasets: Sequence[str], attributes: Mapping[str, Any], locking: Locking
) -> None:
    """Copies datasets into a recording through its journal: either all of them appear, or none."""
    inspect(path)
    try:
        storage = JournaledFile(path, locking, existing=True)
    except BlockingIOError as error:
        raise RecordingError(f"{path} is unchanged, because it is open elsewhere; close it there first") from error
    try:
        size_bytes = path.stat().st_size + temporary.stat().st_size + SPARE_BYTES
        needed_bytes = size_bytes - storage.allocated_bytes
        with writing(path, kind=RecordingWriteError, saved="it is unchanged", needed_bytes=needed_bytes):
            storage.claim(size_bytes)
        with h5py.File(temporary, "r") as source, h5py.File(storage, "r+") as file:
            for dataset in datasets:
                folder, name = dataset.rsplit("/", 1)
                source.copy(dataset, file.require_group(folder), name)
            file.attrs.update(attributes)
            chunks = chunk_ranges(file)
        storage.commit_and_close(chunks)
    finally:
        storage.discard_and_close()
    remember(path)


def _join_again(recording: Recording, paths: Sequence[Path]) -> None:
    complete, renumber = recording.complete, not recording.file["steps/episode"].is_virtual
    attributes = {name: recording.file.attrs[name] for name in ("settings", "seed")}
    recording.release()
    join(paths, recording.path, complete=complete, renumber=renumber, attributes=attributes, locking=recording.locking)
