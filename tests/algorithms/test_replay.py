"""The memory against every frame that was put in, each of which carries a number of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from marlnb.algorithms.replay import Key, ReplayBuffer
from marlnb.algorithms.rollout import next_observations
from marlnb.errors import CheckpointError, ShapeError
from marlnb.specs import ActionSpec, GroupSpec, ObservationSpec

ROOT = Path(__file__).parents[2]
OWN = GroupSpec("a", ("a_0", "a_1"), ObservationSpec((2,)), ActionSpec("discrete", n=(3,)), has_action_mask=True)
NEXT: tuple[Key, ...] = (("a", "observation"), ("b", "observation"), ("a", "alive"), ("a", "action_mask"), "state")
NOW: tuple[Key, ...] = (("a", "action"), ("b", "action"), ("a", "acting"))
ENDS: tuple[Key, ...] = (
    *(("next", "a", name) for name in ("reward", "terminated", "done")),
    ("next", "b", "terminated"),
)


def following(key: Key) -> Key:
    return ("next", key) if isinstance(key, str) else ("next", *key)


class Stream:
    """Rollouts `[env, time]` with ends at random; every observation, final ones included, is a number of its own."""

    def __init__(self, n_envs: int, *, turns: bool = False, seed: int = 0) -> None:
        self.n_envs, self.turns = n_envs, turns
        self.generator = torch.Generator().manual_seed(seed)
        self.count, self.begins = 0, torch.ones(n_envs, dtype=torch.bool)
        self.head = self.time_step()
        self.seen: dict[float, dict[Key, torch.Tensor]] = {}
        self.order: dict[float, tuple[int, int]] = {}
        self.t = 0

    def draw(self, *shape: int) -> torch.Tensor:
        return torch.rand(self.n_envs, *shape, generator=self.generator)

    def time_step(self) -> dict[Key, torch.Tensor]:
        n = self.n_envs
        numbers = self.count + torch.arange(n * 7, dtype=torch.float32).view(n, 7)
        self.count += n * 7
        return {
            ("a", "observation"): numbers[:, :4].reshape(n, 2, 2),
            ("b", "observation"): numbers[:, 4:6].reshape(n, 1, 2),
            "state": numbers[:, 6:],
            ("a", "alive"): self.draw(2) < 0.8,
            ("a", "action_mask"): self.draw(2, 3) < 0.5,
        }

    def rollout(self, n_steps: int) -> TensorDict:
        steps: list[dict[Key, torch.Tensor]] = []
        for _ in range(n_steps):
            now, final = self.head, self.time_step()
            self.head = self.time_step()
            done = self.draw() < 0.2
            elsewhere = torch.ones_like(done) if self.turns else done
            row: dict[Key, torch.Tensor] = dict(now)
            for key in NEXT:
                where = elsewhere.view(-1, *(1,) * (final[key].ndim - 1))
                row[following(key)] = torch.where(where, final[key], self.head[key])
            row[("a", "action")], row[("b", "action")] = (self.draw(2) * 3).long(), (self.draw(1) * 3).long()
            row[("a", "acting")] = now["a", "alive"]
            row[("next", "a", "reward")] = self.draw(2, 1)
            row[("next", "a", "terminated")] = row[("next", "a", "done")] = done.view(-1, 1, 1).expand(-1, 2, 1)
            row[("next", "b", "terminated")] = self.draw(1, 1) < 0.3
            row["is_init"] = self.begins.unsqueeze(-1)
            row[("a", "recurrent")] = self.draw(2, 1, 3)
            self.begins = done
            steps.append(row)
            for env_index in range(self.n_envs):
                number = float(now["state"][env_index])
                self.seen[number] = {key: value[env_index].clone() for key, value in row.items()}
                self.order[number] = (env_index, self.t)
            self.t += 1
        rollout = TensorDict({}, [self.n_envs, n_steps])
        for key in steps[0]:
            rollout[key] = torch.stack([row[key] for row in steps], 1)
        return rollout

    def check(self, sample: dict[Any, torch.Tensor], keys: tuple[Key, ...]) -> list[float]:
        """Every frame of a sample is as it was put in; returns their numbers."""
        numbers = sample["state"].flatten().tolist()
        for index, number in enumerate(numbers):
            for key in keys:
                value = sample[key].flatten(0, sample["state"].ndim - 2)[index]
                assert torch.equal(value, self.seen[number][key]), key
        return numbers


def memory(capacity: int, chunk: int = 1, seed: int = 0, n_steps: int = 1) -> ReplayBuffer:
    reads = ("a", "b")
    return ReplayBuffer(capacity, group=OWN, reads=reads, sequence_length=chunk, n_steps=n_steps, gamma=0.9, seed=seed)


ALL = (*NEXT, *(following(key) for key in NEXT), *NOW, *ENDS)


@pytest.mark.parametrize("turns", [False, True], ids=["at each step", "by turns"])
@pytest.mark.parametrize("n_steps", [1, 4, 9, 10])
def test_the_last_frames_come_back_as_they_were_put_in(n_steps: int, turns: bool) -> None:
    stream, replay = Stream(3, turns=turns), memory(30)
    for k in range(1, 31):
        replay.add(stream.rollout(n_steps))
        held = min(30, 3 * n_steps * k)
        assert len(replay) == replay.n_samples == held
        sample = replay.sample(200)
        assert sample.keys() == set(ALL)
        numbers = set(stream.check(sample, ALL))
        newest = set(sorted(stream.seen)[-held:])
        assert numbers <= newest and len(numbers) > 0.9 * held


@pytest.mark.parametrize("turns", [False, True], ids=["at each step", "by turns"])
@pytest.mark.parametrize("n_steps", [2, 3, 7])
def test_several_steps_are_those_that_follow_one_after_the_other(n_steps: int, turns: bool) -> None:
    """Next observations that are no later frame, as of turns, end a sample too."""
    stream, replay = Stream(3, turns=turns), memory(45, n_steps=n_steps)
    lengths = set()
    for _ in range(12):
        replay.add(stream.rollout(4))
        by_time = {place: stream.seen[number] for number, place in stream.order.items()}
        sample = replay.sample(60)
        for index, number in enumerate(sample["state"].flatten().tolist()):
            env_index, t = stream.order[number]
            row = by_time[env_index, t]
            assert all(torch.equal(sample[key][index], row[key]) for key in (*NEXT, *NOW))
            reward, used = row["next", "a", "reward"].clone(), 1
            while (
                used < n_steps
                and not row["next", "a", "done"].any()
                and (later := by_time.get((env_index, t + used))) is not None
                and torch.equal(row["next", "state"], later["state"])
            ):
                reward, used, row = reward + 0.9**used * later["next", "a", "reward"], used + 1, later
            torch.testing.assert_close(sample["next", "a", "reward"][index], reward)
            assert int(sample["steps"][index]) == used
            after = (*(following(key) for key in NEXT), *ENDS[1:])
            assert all(torch.equal(sample[key][index], row[key]) for key in after)
            lengths.add(used)
    assert lengths == ({1} if turns else set(range(1, n_steps + 1)))


def test_an_episode_that_begins_with_the_observation_it_ended_with_is_another_one() -> None:
    replay = memory(30, n_steps=3)
    rollout = Stream(2).rollout(4)
    for key in NEXT:
        rollout[key] = rollout[following(key)] = torch.ones_like(rollout[key])
    rollout["next", "a", "reward"] = torch.ones(2, 4, 2, 1)
    rollout["next", "a", "done"] = torch.tensor([False, True, False, False]).view(1, 4, 1, 1).expand(2, 4, 2, 1)
    replay.add(rollout)
    sample = replay.sample(100)
    assert sample["steps"].unique().tolist() == [1, 2]
    expected = torch.where(sample["steps"] == 2, 1.9, 1.0)[..., None].expand(100, 2, 1)
    torch.testing.assert_close(sample["next", "a", "reward"], expected)


def test_one_draw_takes_the_same_frames_as_draws_in_turn() -> None:
    """What members that share a buffer rely on: `StackedDDPG` draws for all at once."""
    stream, whole, parts = Stream(3), memory(30), memory(30)
    for _ in range(4):
        rollout = stream.rollout(4)
        whole.add(rollout)
        parts.add(rollout)
        at_once, in_turn = whole.sample(16 + 1 + 24), [parts.sample(n) for n in (16, 1, 24)]
        for key, values in at_once.items():
            assert torch.equal(values, torch.cat([sample[key] for sample in in_turn])), key


def test_a_reset_between_rollouts_keeps_the_stored_next_observations() -> None:
    stream, replay = Stream(3), memory(60)
    for _ in range(6):
        replay.add(stream.rollout(4))
        stream.head = stream.time_step()  # as a reset at a checkpoint: no step is done, yet another moment follows
        stream.check(replay.sample(200), ALL)


@pytest.mark.parametrize("n_steps", [1, 5, 8, 12])
def test_sequences_are_runs_of_one_copy_with_the_state_that_entered(n_steps: int) -> None:
    stream, replay = Stream(3), memory(60, chunk=4)
    keys = (*ALL, "is_init")
    starts = set()
    for k in range(1, 20):
        replay.add(stream.rollout(n_steps))
        assert len(replay) >= min(60, 3 * n_steps * k)
        if not replay.n_samples:
            assert n_steps * k < 4
            with pytest.raises(ShapeError, match="nothing to sample"):
                replay.sample(1)
            continue
        sample = replay.sample(50)
        stream.check(sample, keys)
        for index in range(50):
            positions = [stream.order[number] for number in sample["state"][index].flatten().tolist()]
            env_index, t = positions[0]
            assert positions == [(env_index, t + j) for j in range(4)] and t % 4 == 0 and t >= stream.t - 23
            first = stream.seen[float(sample["state"][index, 0])]
            assert torch.equal(sample["a", "recurrent"][index], first["a", "recurrent"])
            starts.add(positions[0])
    assert len({env_index for env_index, _ in starts}) == 3


def test_a_loaded_memory_continues_as_the_saved_one() -> None:
    for chunk, turns in ((1, False), (1, True), (4, False)):
        stream, replay = Stream(3, turns=turns), memory(60, chunk)
        for rollouts in (0, 2, 9):  # empty, part full, round
            for _ in range(rollouts):
                replay.add(stream.rollout(5))
            again = memory(60, chunk, seed=7)
            again.load_state_dict(replay.state_dict())
            assert len(again) == len(replay)
        for _ in range(20):
            rollout = stream.rollout(5)
            replay.add(rollout)
            again.add(rollout)
            left, right = replay.sample(40), again.sample(40)
            assert left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)


def test_a_saved_state_does_not_change_with_the_memory() -> None:
    stream, replay = Stream(3), memory(30)
    replay.add(stream.rollout(5))
    state = replay.state_dict()
    expected = state["rows"]["state"].clone()
    for _ in range(5):
        replay.add(stream.rollout(5))
    assert torch.equal(state["rows"]["state"], expected)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_next_observations_are_not_stored_twice() -> None:
    """A million frames of three agents with 18 features: 216 bytes of observation a frame, once.

    The memory is taken as the buffer fills. A new process measures it: one that has freed memory reuses it.
    """
    code = "from tests.algorithms.test_replay import memory_of_a_million; print(*memory_of_a_million())"
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    taken, size = map(int, printed.split())
    assert taken < 0.25 * size
    a_frame = 3 * 18 * 4 + 3 * 8 + 3 * 4 + 4 * 3 + 8  # observation, action, reward, four flags, what lies aside
    assert size == pytest.approx(1_000_000 * a_frame, rel=1e-3)


def memory_of_a_million() -> tuple[int, int]:
    """Bytes that the process takes for a buffer of a million frames and its first rollout, and those of the buffer."""
    group = GroupSpec("a", ("a_0", "a_1", "a_2"), ObservationSpec((18,)), ActionSpec("discrete", n=(5,)))
    replay = ReplayBuffer(1_000_000, group=group, reads=("a",), seed=0)
    rollout = TensorDict({}, [8, 5])
    rollout["a", "observation"] = rollout["next", "a", "observation"] = torch.zeros(8, 5, 3, 18)
    rollout["a", "action"] = torch.zeros(8, 5, 3, dtype=torch.int64)
    rollout["a", "alive"] = rollout["next", "a", "alive"] = torch.ones(8, 5, 3, dtype=torch.bool)
    rollout["a", "acting"] = rollout["a", "alive"]
    rollout["next", "a", "reward"] = torch.zeros(8, 5, 3, 1)
    rollout["next", "a", "terminated"] = rollout["next", "a", "done"] = torch.zeros(8, 5, 3, 1, dtype=torch.bool)
    before = _resident_bytes()
    replay.add(rollout)
    return _resident_bytes() - before, replay.size_bytes


def test_a_critic_reads_zeros_of_an_agent_of_another_group_that_has_died() -> None:
    """b_0 dies at step 1 of 3: its last observation is 2, and zero afterwards."""
    replay, rollout = memory(30), Stream(1).rollout(3)
    rollout["b", "observation"] = torch.tensor([1.0, 1.0, 0.0]).view(1, 3, 1, 1).expand(-1, -1, -1, 2).clone()
    rollout["next", "b", "observation"] = torch.tensor([1.0, 2.0, 0.0]).view(1, 3, 1, 1).expand(-1, -1, -1, 2).clone()
    rollout["next", "b", "terminated"] = torch.tensor([False, True, False]).view(1, 3, 1, 1)
    rollout["next", "a", "terminated"] = torch.zeros(1, 3, 2, 1, dtype=torch.bool)
    replay.add(rollout)
    sample = replay.sample(50)
    read = next_observations(sample, ("a", "b"))
    steps = (sample["state"] == rollout["state"][0].T).int().argmax(-1)
    assert set(steps.tolist()) == {0, 1, 2}
    assert torch.equal(read["b"], torch.tensor([1.0, 0.0, 0.0])[steps].view(-1, 1, 1).expand(-1, 1, 2))
    assert torch.equal(read["a"], sample["next", "a", "observation"])


def test_samples_are_drawn_evenly() -> None:
    stream, replay = Stream(3), memory(30)
    for _ in range(5):
        replay.add(stream.rollout(10))
    counts = replay.sample(30_000)["state"].flatten().unique(return_counts=True)[1]
    assert len(counts) == 30 and (counts - 1000).abs().max() < 150  # five deviations


def test_what_does_not_fit_says_so() -> None:
    stream, replay = Stream(3), memory(30)
    with pytest.raises(ShapeError, match="at most 10 steps"):
        replay.add(stream.rollout(11))
    replay.add(stream.rollout(10))
    with pytest.raises(ShapeError, match="2 environments"):
        replay.add(Stream(2).rollout(4))
    with pytest.raises(CheckpointError, match="33 rows"):
        memory(12).load_state_dict(replay.state_dict())
    earlier = replay.state_dict()
    del earlier["rows"]["next/b/terminated"]
    with pytest.raises(CheckpointError, match=r"lacks next/b/terminated: .* earlier version"):
        memory(30).load_state_dict(earlier)
