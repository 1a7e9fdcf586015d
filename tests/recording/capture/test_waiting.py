"""What waits to be copied: what comes of it is what was there when the step was taken, whoever writes where later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from marlnb.envs.vector import allocate_step
from marlnb.errors import RecordingError, SiteError
from marlnb.recording.capture.ring_buffer import InFlight
from marlnb.recording.capture.sources import Source
from marlnb.recording.capture.waiting import LOOKS, STEP_BYTES, STEPS, Waiting
from marlnb.recording.file.layout import Field
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

N_ENVS = 2


def spec_of(features: int) -> EnvSpec:
    seen = ObservationSpec((features,))
    groups = (
        GroupSpec("a", ("a_0", "a_1", "a_2"), seen, ActionSpec("discrete", (4,)), has_action_mask=True),
        GroupSpec("b", ("b_0",), seen, ActionSpec("discrete", (2,))),
    )
    return EnvSpec("toy", groups, state_shape=(2,))


def buffers(step: Any) -> dict[str, Callable[[], Tensor]]:
    """Every buffer of a step, by name, a part of the agents among them."""
    found: dict[str, Callable[[], Tensor]] = {"state": lambda: step.state, "done": lambda: step.done}
    for name, group in step.groups.items():
        for item in ("observation", "alive", "acting", "reward", "terminated", "truncated"):
            found[f"{name}/{item}"] = lambda group=group, item=item: getattr(group, item)
    found["a/action_mask"] = lambda: step.groups["a"].action_mask
    found["a/part"] = lambda: step.groups["a"].observation[:, 1:]
    return found


def field_of(path: str, tensor: Tensor, dtype: str = "") -> Field:
    kind = dtype or str(tensor.dtype).removeprefix("torch.")
    return Field(path, tuple("abcd"[: tensor.dim() - 1]), tuple(tensor.shape[1:]), kind)


def take(waiting: Waiting, what: Any, memory: np.ndarray | None = None) -> None:
    """A step that leaves all as it was."""
    waiting.before(what)
    waiting.after(what, what, memory)


def fill(tensor: Tensor, generator: torch.Generator) -> None:
    tensor.copy_(torch.randint(0, 2 if tensor.dtype == torch.bool else 100, tensor.shape, generator=generator))


@pytest.mark.parametrize("features", [3, STEP_BYTES], ids=["small", "large"])
@pytest.mark.parametrize("has_memory", [True, False])
@pytest.mark.parametrize("longer", [False, True], ids=["wraps", "grows"])
@pytest.mark.parametrize("together", [1, 7])
def test_buffers_that_are_overwritten_are_kept_as_they_were(
    features: int, has_memory: bool, longer: bool, together: int, tmp_path: Path
) -> None:
    """An environment that fills its buffers anew at each step, every one with numbers of that step."""
    step = allocate_step(spec_of(features), N_ENVS, "cpu")
    sources = [Source(field_of(name, get()), lambda _, get=get: get()) for name, get in buffers(step).items()]
    if features == STEP_BYTES:
        sources = [source for source in sources if source.field.path in ("b/observation", "b/reward", "done")]
    capacity, steps = STEPS + 10, 2 * STEPS + 40
    ring = InFlight([source.field for source in sources], N_ENVS, capacity, tmp_path)
    half = len(sources) // 2
    waiting, expected = Waiting(ring, sources[:half], sources[half:]), []
    generator = torch.Generator().manual_seed(torch.initial_seed() % 2**31)
    brief = 0
    for number in range(steps):
        if number in (3, 30, steps - 30, steps - 1):  # what the step before left is not what is there now
            waiting.begin()
            for get in buffers(step).values():
                fill(get(), generator)
        if longer and number == steps - 20:
            waiting.copy()
            ring.grow(steps - 50)
        if not waiting.only_waits:
            waiting.before(step)
        only_waited = waiting.only_waits
        seen = [source.get(None).clone() for source in sources[:half]]
        for get in buffers(step).values():
            fill(get(), generator)
        expected.append(seen + [source.get(None).clone() for source in sources[half:]])
        if not only_waited or together == 1:
            waiting.after(step, step, step.memory if has_memory else None)
            ring.position += 1
            continue
        assert waiting.copies is not None
        if not brief:
            most, slots = min(together, waiting.room), waiting.copies.following()
        next(slots)[:] = waiting.copies.memory
        brief += 1
        follows = number + 1 not in (30, steps - 30, steps - 20, steps - 1, steps)
        if brief == most or not follows:
            waiting.after_many([step] * brief, step, step)
            ring.position += brief
            brief = 0
    assert only_waited == (waiting.copies is not None) == (has_memory and features == 3)
    waiting.copy()
    flat = (np.arange(steps - 50, steps) % ring.capacity)[:, None] * N_ENVS + np.arange(N_ENVS)
    for index, source in enumerate(sources):
        found = ring.tensor_rows(index, flat.ravel()).unflatten(0, (50, N_ENVS))
        assert torch.equal(found, torch.stack([each[index] for each in expected[-50:]])), source.field.path


def test_steps_that_never_follow_one_another_are_kept_as_they_were(tmp_path: Path) -> None:
    """As of a recorder of every k-th step: what was there before a step is not what the last one left."""
    step, steps = allocate_step(spec_of(3), N_ENVS, "cpu"), 5 * STEPS
    seen = {name: get for name, get in buffers(step).items() if name in ("a/observation", "a/reward")}
    sources = [Source(field_of(name, get()), lambda _, get=get: get()) for name, get in seen.items()]
    ring = InFlight([source.field for source in sources], N_ENVS, steps, tmp_path)
    waiting, expected = Waiting(ring, sources[:1], sources[1:]), []
    for number in range(steps):
        if number == LOOKS + 3:
            waiting.copy()  # in between, as when episodes have ended
        waiting.begin()
        for at, get in enumerate(seen.values()):
            get().fill_(2 * number + at)
            if not at:
                waiting.before(step)
        expected.append((2 * number, 2 * number + 1))
        step.groups["a"].observation.fill_(-1)
        waiting.after(step, step, step.memory)
        ring.position += 1
    waiting.copy()
    found = [ring.rows(index, np.arange(steps) * N_ENVS).reshape(steps, -1) for index in range(2)]
    assert [(a.min(), b.min()) for a, b in zip(*found)] == [(a.max(), b.max()) for a, b in zip(*found)] == expected


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64"])
@pytest.mark.parametrize("units", [3, STEP_BYTES], ids=["small", "large"])
def test_tensors_that_last_are_copied_later_and_in_their_places(tmp_path: Path, dtype: str, units: int) -> None:
    """Around the ring's end, when it grows, and with a tensor that comes twice after all."""
    kind, capacity, steps = getattr(torch, dtype), STEPS + 10, 2 * STEPS + 40
    source = Source(Field("x", ("unit",), (units,), dtype), lambda time_step: time_step, True)
    ring = InFlight([source.field], 1, capacity, tmp_path)
    waiting, twice, most = Waiting(ring, [source]), torch.full((1, units), 99.0), 0
    for step in range(steps):
        take(waiting, twice if step in (steps - 6, steps - 5) else torch.full((1, units), float(step)))
        most = max(most, len(waiting._moments))
        ring.position += 1
        if step == steps - 20:
            waiting.copy()
            ring.grow(steps - 50)
    waiting.copy()
    assert (most > LOOKS) == (units == 3)
    values = [99 if step in (steps - 6, steps - 5) else step for step in range(steps - 50, steps)]
    found = ring.tensor_rows(0, np.arange(steps - 50, steps) % ring.capacity)
    assert torch.equal(found, torch.tensor(values).to(kind)[:, None].expand(50, units))


def reused(begins: int, *, anew: bool) -> Callable[[int], Tensor]:
    """Of a policy that puts its outputs into one buffer from step `begins` on, seen as a new view each time or not."""
    memory = np.zeros(4, np.float32)
    buffer = torch.from_numpy(memory)

    def output(step: int) -> Tensor:
        if step < begins:
            return torch.full((N_ENVS,), float(step))
        memory[:] = step  # as numpy, which torch does not notice
        return torch.from_numpy(memory)[1:3] if anew else buffer.fill_(step)[1:3]

    return output


@pytest.mark.parametrize("anew", [True, False])
def test_memory_that_is_written_again_is_never_kept(anew: bool, tmp_path: Path) -> None:
    source = Source(Field("x", (), (), "float32"), lambda time_step: time_step, True)
    ring = InFlight([source.field], N_ENVS, 64, tmp_path)
    waiting, output = Waiting(ring, [source]), reused(0, anew=anew)
    for step in range(40):
        take(waiting, output(step))
        ring.position += 1
    waiting.copy()
    assert ring.rows(0, np.arange(80)).tolist() == [step for step in range(40) for _ in range(2)]


def test_tensors_that_somebody_else_writes_to_are_kept_as_they_were(tmp_path: Path) -> None:
    """As an environment that puts actions right in place, which torch does not notice."""
    source = Source(Field("x", (), (), "float32"), lambda time_step: time_step, True)
    ring = InFlight([source.field], N_ENVS, 64, tmp_path)
    waiting = Waiting(ring, [source])
    for step in range(40):
        action = torch.full((N_ENVS,), float(step))
        waiting.before(action)
        action.numpy()[:] = -1
        waiting.after(action, None)
        ring.position += 1
    waiting.copy()
    assert ring.rows(0, np.arange(80)).tolist() == [step for step in range(40) for _ in range(2)]


@pytest.mark.parametrize("anew", [True, False])
def test_memory_that_is_written_again_after_all_is_an_error(anew: bool, tmp_path: Path) -> None:
    source = Source(Field("x", (), (), "float32"), lambda time_step: time_step, True)
    ring = InFlight([source.field], N_ENVS, 64, tmp_path)
    waiting, output = Waiting(ring, [source]), reused(LOOKS + 2, anew=anew)
    for step in range(LOOKS + 5):
        take(waiting, output(step))
        ring.position += 1
    with pytest.raises(RecordingError, match="x: what a policy put out was written to again"):
        waiting.copy()


def test_a_buffer_that_moves_is_an_error(tmp_path: Path) -> None:
    step = allocate_step(spec_of(3), N_ENVS, "cpu")
    source = Source(Field("reward", ("agent",), (3,), "float32"), lambda step: step.groups["a"].reward)
    ring = InFlight([source.field], N_ENVS, 64, tmp_path)
    waiting = Waiting(ring, (), [source])
    for _ in range(LOOKS + 2):
        take(waiting, step, step.memory)
        ring.position += 1
    step.groups["a"].reward = torch.ones(N_ENVS, 3)
    take(waiting, step)
    with pytest.raises(RecordingError, match="reward: the environment's tensor is no longer where it was"):
        waiting.copy()


def test_what_hooks_captured_waits_with_its_moment_and_silence_is_told_at_once(tmp_path: Path) -> None:
    activations: dict[str, Tensor] = {}
    source = Source(Field("activations/a/x", ("unit",), (3,), "float32"), lambda _: activations["a/x"], True)
    ring = InFlight([source.field], N_ENVS, 64, tmp_path)
    waiting = Waiting(ring, [source], activations=activations)
    for step in range(40):
        activations["a/x"] = torch.full((N_ENVS, 3), float(step))
        time_step = object()
        waiting.before(time_step)
        assert not activations
        waiting.after(time_step, None)
        ring.position += 1
    assert len(waiting._moments) == 40 - LOOKS
    waiting.copy()
    assert ring.rows(0, np.arange(0, 80, 2))[:, 0].tolist() == list(range(40))
    with pytest.raises(SiteError, match="the site a/x fired at first, but not at every step"):
        waiting.before(object())
