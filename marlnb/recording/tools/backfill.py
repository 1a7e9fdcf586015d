"""backfill: a site that was forgotten, computed from the observations and states that were recorded."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor

from marlnb.errors import RecordingError
from marlnb.models.hooks.capture import all_sites
from marlnb.models.hooks.sites import Site, match_sites
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.policy_source import maker_of, origin_at, policies_of
from marlnb.recording.capture.recompute import in_critic, recompute
from marlnb.recording.capture.sources import Selection
from marlnb.recording.file.array import LabelledArray
from marlnb.recording.file.journal import JournaledFile
from marlnb.recording.file.layout import BFLOAT16, Field, create_dataset, datasets_below, hdf5_type
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.segments import join, segment_paths
from marlnb.recording.file.writer import SPARE_BYTES
from marlnb.training.collect.threads import torch_threads
from marlnb.training.runs.run import Origin

BATCH_ROWS = 2048


def backfill(
    recording: Recording,
    sites: str | Sequence[str],
    *,
    policies: Mapping[str, Policy] | None = None,
) -> Recording:
    """Adds sites to a recording, as if they had been recorded; their datasets have the attribute `filled` "backfilled".

    They are computed by the policies of the checkpoint that made each row, from its observations and the recurrent
    states that entered it, to 1e-5 of what fired (to the precision of what was stored, where that is half). The file is
    changed in one stroke: a kill leaves it as it was.

    Args:
        sites: globs over site names, of actors and critics.
        policies: by group, where the file does not lie in the run folder that made it; one checkpoint's.
    Raises:
        SiteError: a glob that matches nothing.
        RecordingError: the sites are recorded already; the recording was made with edits; something that they are
            computed from was not recorded, which is named; other weights than those that made it.
    """
    makers = _makers(recording, policies)
    first = next(iter(makers.values()))
    found = match_sites(all_sites(first), sites)
    new = [site for site in found if site.name not in recording and site.name.split("/")[0] in recording.groups]
    if not new:
        raise RecordingError(f"{recording.path.name} has all of {[site.name for site in found]} already")
    if recording.settings.get("edits"):
        raise RecordingError(f"{recording.path.name} was recorded with edits in force; its sites cannot be computed")
    for site in new:
        _check_inputs(recording, first[site.name.split("/")[0]], site)
    paths = segment_paths(recording.file, recording.path) or [recording.path]
    joined = paths != [recording.path]
    for path in paths:
        recording.release()
        with Recording.open(path, locking=recording.locking) as part:
            _fill(part, new, makers)
    if joined:
        _join_again(recording, paths)
    return recording


def _makers(recording: Recording, policies: Mapping[str, Policy] | None) -> dict[Origin, Mapping[str, Policy]]:
    """By checkpoint, the policies that made its rows."""
    table = recording.checkpoints
    starts = table["row_start"][table["row_stop"] > table["row_start"]]
    origins = list(dict.fromkeys(origin_at(recording, int(row)) for row in starts))
    if policies is not None:
        if len(origins) > 1:
            raise RecordingError(f"{recording.path.name} spans {len(origins)} checkpoints; policies= are of one")
        return {origins[0]: policies}
    subject = maker_of(recording, None)
    return {origin: policies_of(recording, subject, origin) for origin in origins}


def _check_inputs(recording: Recording, policy: Policy, site: Site) -> None:
    """Raises RecordingError, with what is missing, where a site cannot be computed."""
    group, spec = policy.group.name, recording.spec
    refused = f"{site.name} cannot be computed from {recording.path.name}"
    judged = in_critic(site.name)
    needed = list(spec.group_names) if judged else [group]
    agents = [agent for name in needed for agent in spec.group(name).agents]
    missing = [agent for agent in agents if agent not in recording.agents]
    if missing and (judged or policy.cross_agent):
        raise RecordingError(f"{refused}: it depends on what {missing} saw, which was not recorded")
    lacking = [name for name in needed if name not in recording.groups or "observation" not in recording.fields(name)]
    if lacking:
        raise RecordingError(f"{refused}: the observations of {lacking} were not recorded")
    shape = policy.critic_recurrent_shape if judged else policy.recurrent_shape
    part = "critic" if judged else "actor"
    if shape is not None and _recurrent_path(recording, group, part) is None:
        raise RecordingError(f"{refused}: the {part}'s recurrent states were not recorded")
    if judged and spec.state_shape is not None and "state" not in recording.file["steps"]:
        raise RecordingError(f"{refused}: the environment's state was not recorded")


def _recurrent_path(recording: Recording, group: str, part: str) -> str | None:
    below = f"recurrent/{group}"
    return next((f"{below}/{name}" for name in datasets_below(recording.file, below) if name.startswith(part)), None)


def _fill(part: Recording, sites: Sequence[Site], makers: Mapping[Origin, Mapping[str, Policy]]) -> None:
    """Computes into a file beside, then copies the datasets over in one commit."""
    beside = part.path.with_name(f".{part.path.name}.filling-{os.getpid()}")
    fields = [_field(part, site) for site in sites]
    try:
        with h5py.File(beside, "w") as file:
            targets = {}
            for site, field in zip(sites, fields):
                targets[site.name] = create_dataset(file, field, field.chunk_rows(BATCH_ROWS))
                targets[site.name].resize(len(part), axis=0)
                targets[site.name].attrs["filled"] = "backfilled"
            for start in range(0, len(part), BATCH_ROWS):
                _fill_rows(part, sites, fields, makers, targets, start)
        settings = part.settings
        settings["sites"] = [*settings.get("sites", []), *(site.name for site in sites)]
        part.close()
        _add(part.path, beside, fields, {"settings": json.dumps(settings, sort_keys=True)}, part.locking)
    finally:
        beside.unlink(missing_ok=True)


def _field(part: Recording, site: Site) -> Field:
    group = part.spec.group(site.name.split("/")[0])
    indices = tuple(index for index, agent in enumerate(group.agents) if agent in part.agents)
    chosen = Selection(group, indices).of_site(site)
    if chosen is None:
        raise RecordingError(f"{site.name} belongs to none of the recorded agents {part.agents}")
    return chosen.field_of(site, str(part.file.attrs["dtype"]))


@torch_threads(1)
def _fill_rows(
    part: Recording,
    sites: Sequence[Site],
    fields: Sequence[Field],
    makers: Mapping[Origin, Mapping[str, Policy]],
    targets: Mapping[str, h5py.Dataset],
    start: int,
) -> None:
    rows = np.arange(start, min(start + BATCH_ROWS, len(part)))
    table = part.checkpoints
    edges = sorted({start, *(int(row) for row in table["row_start"] if start < row <= rows[-1]), int(rows[-1]) + 1})
    for first, stop in itertools.pairwise(edges):
        policies = makers[origin_at(part, first)]
        span = np.arange(first, stop)
        for group in dict.fromkeys(site.name.split("/")[0] for site in sites):
            own = [(site, field) for site, field in zip(sites, fields) if site.name.startswith(f"{group}/")]
            found = recompute(
                policies[group], [site.name for site, _ in own], **_inputs(part, policies[group], span, own)
            )
            for site, field in own:
                places = _places(part, site, field)
                _write(targets[site.name], first, found[site.name][:, places].to(field.torch_dtype))


def _places(part: Recording, site: Site, field: Field) -> list[int]:
    """Where the recorded agents lie on the agent axis of a site."""
    group = part.spec.group(field.group)
    names = group.agents if site.agents is None else [group.agents[agent] for agent in site.agents]
    return [place for place, agent in enumerate(names) if agent in part.agents]


def _inputs(part: Recording, policy: Policy, rows: np.ndarray, own: Sequence[tuple[Site, Field]]) -> dict[str, Any]:
    group, judged = policy.group.name, any(in_critic(site.name) for site, _ in own)
    groups = part.spec.group_names if judged else (group,)
    found: dict[str, Any] = {
        "observations": {name: _whole(part, part.steps(name, "observation"), name, rows) for name in groups}
    }
    if policy.recurrent_shape is not None and any(not in_critic(site.name) for site, _ in own):
        found["recurrent"] = _state(part, group, "actor", rows)
    if policy.critic_recurrent_shape is not None and judged:
        found["critic_recurrent"] = _state(part, group, "critic", rows)
    if judged and part.spec.state_shape is not None:
        found["state"] = torch.from_numpy(replace(part.state, rows=rows).to_numpy())
    return found


def _state(part: Recording, group: str, kind: str, rows: np.ndarray) -> Tensor:
    path = _recurrent_path(part, group, kind)
    assert path is not None  # `_check_inputs` has seen it
    return _whole(part, part._array(path), group, rows)


def _whole(part: Recording, array: LabelledArray, group: str, rows: np.ndarray) -> Tensor:
    """`[row, agent of the group, ...]`, zero for those that were not recorded."""
    agents, values = part.spec.group(group).agents, replace(array, rows=rows).to_numpy()
    own = part.group_agents(group)
    if list(agents) == own:
        return torch.from_numpy(values)
    spread = np.zeros((len(rows), len(agents), *values.shape[2:]), values.dtype)
    spread[:, [agents.index(agent) for agent in own]] = values
    return torch.from_numpy(spread)


def _write(target: h5py.Dataset, start: int, values: Tensor) -> None:
    bits = values.dtype == torch.bfloat16
    stored = np.ascontiguousarray((values.cpu().contiguous().view(torch.int16) if bits else values.cpu()).numpy())
    space = target.id.get_space()
    space.select_hyperslab((start, *(0 for _ in stored.shape[1:])), stored.shape)
    memory = h5py.h5s.create_simple(stored.shape)
    target.id.write(memory, space, stored, hdf5_type(BFLOAT16) if bits else None)


def _add(path: Path, beside: Path, fields: Sequence[Field], attributes: Mapping[str, Any], locking: Any) -> None:
    """Copies datasets into a recording through its journal: they are there whole, or not at all."""
    storage = JournaledFile(path, locking, existing=True)
    try:
        storage.claim(path.stat().st_size + beside.stat().st_size + SPARE_BYTES)
    except OSError as error:
        storage.close_as_it_was()
        raise RecordingError(f"{path}: no room for what is to be added ({error.strerror}); it is as it was") from error
    try:
        with h5py.File(beside, "r") as source, h5py.File(storage, "r+") as file:
            for field in fields:
                folder, name = field.path.rsplit("/", 1)
                source.copy(field.path, file.require_group(folder), name)
            file.attrs.update(attributes)
    except BaseException:
        storage.close_as_it_was()
        raise
    storage.close_whole()


def _join_again(recording: Recording, paths: Sequence[Path]) -> None:
    complete, anew = recording.complete, not recording.file["steps/episode"].is_virtual
    with Recording.open(paths[0], locking=recording.locking) as part:
        sites = part.settings["sites"]
    settings = {**recording.settings, "sites": sites}
    kept = {"settings": json.dumps(settings, sort_keys=True), "seed": recording.file.attrs["seed"]}
    recording.release()
    join(paths, recording.path, complete=complete, renumber=anew, attributes=kept, locking=recording.locking)
