"""Whose policies made the rows of a recording: the run around the file, or a given source."""

from __future__ import annotations

from collections.abc import Mapping

from marlnb.errors import RecordingError
from marlnb.models.hooks.edit import Edit
from marlnb.models.policies.policy import Policy
from marlnb.populations.matches.seating_file import recorded_source
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.agents import weights_sha256
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source
from marlnb.training.runs.run import Origin
from marlnb.training.runs.run_folder import Which
from marlnb.training.runs.saved_edits import edit_from_json

MOVE_REMEDY = "put it into the folder recordings of its run"


def source_of(
    recording: Recording,
    policy_source: PolicySourceLike | None,
    *,
    trust: bool = False,
    remedy: str = "give policy_source=",
) -> PolicySource:
    """The recorded policies' source: `policy_source`, or the run, player, member or match whose folder has the file.

    Args:
        trust: allow the code that the run folder names (`Run.trust`).
        remedy: what to do where the policies are unknown, for the error.
    Raises:
        RecordingError: `policy_source` is None and the file is in no run folder.
        RunError: the file is of a match, and a player's run does not exist any more.
    """
    if policy_source is not None:
        return as_policy_source(policy_source, trust=trust)
    if recording.run_path is None:
        player = recorded_source(recording.path.absolute().parent.parent, recording.path.stem, trust=trust)
        if player is not None:
            return player
        raise RecordingError(f"{recording.path} is in no run folder, so its policies are unknown; {remedy}")
    return as_policy_source(recording.run_path, trust=trust)


def edits_of(recording: Recording, source: PolicySource) -> tuple[Edit, ...]:
    """The edits that were in force while the policies of `source` were recorded."""
    return tuple(edit_from_json(edit, source.path) for edit in recording.settings.get("edits", ()))


def origin_at(recording: Recording, row: int) -> Origin:
    """The checkpoint that made a row."""
    table = recording.checkpoints
    matches = table[(table["row_start"] <= row) & (row < table["row_stop"])]
    if not len(matches):
        raise RecordingError(f"{recording.path.name} does not say which checkpoint made row {row:,}")
    return Origin(int(matches["iteration"].iloc[0]), str(matches["sha256"].iloc[0]))


def origin_of(recording: Recording, episode: int) -> Origin:
    """The checkpoint that played a whole episode.

    Raises:
        RecordingError: a training's episode, during which the weights changed.
    """
    entry, table = recording.episodes.loc[episode], recording.checkpoints
    start, stop = int(entry["start"]), int(entry["start"] + entry["length"])
    playing = table[(table["row_start"] < stop) & (start < table["row_stop"])]
    if playing["sha256"].nunique() > 1:
        iterations = playing["iteration"].astype(int).tolist()
        env = int(recording.file["steps/env_id"][start])
        raise RecordingError(
            f"{recording.path.name}: episode {episode} was played by the weights of checkpoints "
            f"{', '.join(map(str, iterations))}; only an episode of one checkpoint can be played again, attributed or "
            "decoded. This repeats the training that played it: "
            f"replay_training(run, {iterations[0] + 1}, [{env}], iterations={len(iterations)})"
        )
    return origin_at(recording, start)


def policies_of(recording: Recording, policy_source: PolicySource, origin: Origin) -> Mapping[str, Policy]:
    """The policies of a checkpoint, checked to be those that made the rows.

    Raises:
        RecordingError: the weights differ from those recorded.
        CheckpointError: the checkpoint no longer exists.
    """
    check_origin(recording, policy_source, origin)
    return policy_source.policies(_checkpoint_of(policy_source, origin))


def check_origin(recording: Recording, policy_source: PolicySource, origin: Origin) -> None:
    """Raises RecordingError where `policy_source` has other weights at the checkpoint's iteration."""
    if not has_weights(policy_source, origin):
        current = policy_source.origin(_checkpoint_of(policy_source, origin))
        raise RecordingError(
            f"{recording.path.name} was made by weights {origin.sha256[:12]} (iteration {origin.iteration}), "
            f"but {policy_source.path} has weights {current.sha256[:12]}"
        )


def has_weights(policy_source: PolicySource, origin: Origin) -> bool:
    """Whether a source has the weights of `origin` at its iteration.

    A recording made while training names an iteration without a checkpoint by the hash of its tensors. The iteration
    may have a checkpoint since then.

    Raises:
        CheckpointError: the checkpoint no longer exists.
    """
    checkpoint = _checkpoint_of(policy_source, origin)
    if policy_source.origin(checkpoint).sha256 == origin.sha256:
        return True
    return weights_sha256(policy_source.policies(checkpoint)) == origin.sha256


def _checkpoint_of(policy_source: PolicySource, origin: Origin) -> Which:
    """What the source calls the checkpoint; agents from elsewhere have one, whatever its number in a recording."""
    return "last" if policy_source.experiment is None else origin.iteration
