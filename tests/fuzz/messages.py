"""Messages to the server of external simulators at random: refused with a reason, while good simulators play on.

An input is JSON: whether the sender knows the token, and the pieces of bytes that it sends, as Latin-1. The environment
is stepped in this process between two pieces. It has to answer with messages of its protocol, never to show numbers
that are not finite, and to play an episode with a good simulator afterwards.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import torch

from marlnb.client.messages import HEADER, MAGIC, PROTOCOL, Inbox, Message, WireError
from marlnb.envs.external.config import ExternalConfig
from marlnb.envs.external.env import ExternalEnv
from marlnb.envs.external.options import UNIX, ExternalGroup
from tests.fuzz.processes import Outcome
from tests.fuzz.values import Generator, changed_bytes, changed_json, pick

GROUPS = {
    "a": ExternalGroup(agents=2, observation=(2,), actions=3, action_mask=True),
    "b": ExternalGroup(agents=("boss",), observation=(1,), low=(-1.0,), high=(2.0,)),
    "c": ExternalGroup(agents=1, observation=(2, 2, 1), dtype="uint8", actions=(2, 3)),
}
ANSWERS = ("welcome", "error", "started", "actions", "ended", "over")
GOOD_EVERY = 20  # inputs between two episodes of a good simulator
ACT = {
    ("observation", "a_0"): np.array([1, 2], np.float32),
    ("mask", "a_0"): np.array([True, False, True]),
    ("observation", "boss"): np.array([3], np.float32),
    ("observation", "c_0"): np.zeros((2, 2, 1), np.uint8),
}
MESSAGES = (
    Message({"op": "begin"}),
    Message({"op": "act", "rewards": {}, "ended": {}}, ACT),
    Message({"op": "act", "rewards": {"a_0": 1.5, "boss": -2}, "ended": {"a_1": True}}, ACT),
    Message(
        {"op": "end", "truncated": True, "rewards": {"boss": 1.0}},
        {("final", "boss"): np.ones(1, np.float32), ("final_mask", "a_0"): np.array([False, True, True])},
    ),
)
STRANGE_ARRAYS = (
    *(np.array([np.nan, 1], np.float32), np.array([np.inf, 1], np.float32), np.array([1e39, 0]), np.array([1, 2, 3])),
    *(np.array(1.0, np.float32), np.zeros((0, 2), np.float32), np.zeros((2, 1), np.float32), np.array([False] * 3)),
    *(np.array([300, 1], np.int64), np.array([-1], np.int64), np.array([True, True]), np.array([2**62], np.int64)),
)


class Messages:
    """A target of what third parties and broken simulators send to the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env: ExternalEnv | None = None
        self.n_inputs = 0

    def draw(self, generator: Generator) -> bytes:
        pieces = [self._piece(generator) for _ in range(int(generator.integers(1, 6)))]
        if generator.random() < 0.2:  # several messages at once, or one in two parts
            whole = b"".join(pieces)
            cut = int(generator.integers(len(whole) + 1))
            pieces = [whole[:cut], whole[cut:]]
        known = bool(generator.random() < 0.8)
        return json.dumps({"known": known, "pieces": [piece.decode("latin-1") for piece in pieces]}).encode()

    def outcome(self, data: bytes) -> Outcome:
        given = json.loads(data)
        env = self._open()
        answers: list[Message] = []
        with self._connected() as stranger:
            inbox = Inbox()
            if given["known"]:
                answers += self._exchange(stranger, inbox, _hello(env))
            for piece in given["pieces"]:
                answers += self._exchange(stranger, inbox, piece.encode("latin-1"))
        self._step()
        self.n_inputs += 1
        for answer in answers:
            if answer.op not in ANSWERS:
                return "nonsense", f"the server answered {answer.op!r}"
        if self.n_inputs % GOOD_EVERY == 0:
            self._good_episode()
        errors = [str(answer.header.get("message")) for answer in answers if answer.op == "error"]
        if any(len(error) > 2_000 for error in errors):
            return "verbose", max(errors, key=len)[:200]
        return ("refused", errors[0]) if errors else ("accepted", "")

    def _piece(self, generator: Generator) -> bytes:
        message = pick(generator, MESSAGES)
        kind = generator.random()
        if kind < 0.25:
            return message.pack()
        if kind < 0.45:
            return changed_bytes(message.pack(), generator)
        if kind < 0.6 and message.arrays:
            key = pick(generator, list(message.arrays))
            strange = {pick(generator, (key, ("final", "a_0"), ("action", "x"))): pick(generator, STRANGE_ARRAYS)}
            return _packed(Message(message.header, {**message.arrays, **strange}))
        packed = _packed(message)
        n_header, n_body = HEADER.unpack_from(packed)[1:]
        header = json.loads(packed[HEADER.size : HEADER.size + n_header])
        text = json.dumps(changed_json(header, generator)).encode()
        claimed = pick(generator, (0, 1, -1, 2**20, 2**31, 2**32 - 1)) if generator.random() < 0.1 else 0
        sizes = max(0, min(2**32 - 1, len(text) + claimed)), n_body
        return HEADER.pack(MAGIC, *sizes) + text + packed[HEADER.size + n_header :]

    def _open(self) -> ExternalEnv:
        """The environment of this process, whose steps poll once."""
        if self.env is None:
            address = f"{UNIX}{self.folder}/{os.getpid()}"
            env = ExternalConfig(groups=GROUPS, address=address).build(2)
            assert isinstance(env, ExternalEnv)
            env.reset(0)
            env.interrupt()
            self.env = env
        return self.env

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self._open().address.removeprefix(UNIX))
        connection.setblocking(False)
        return connection

    def _step(self) -> None:
        """Steps the environment; raises where it shows numbers that are not finite."""
        env = self._open()
        actions = {
            "a": torch.ones(2, 2, dtype=torch.int64),
            "b": torch.full((2, 1, 1), 0.5),
            "c": torch.zeros(2, 1, 2, dtype=torch.int64),
        }
        step = env.step(actions)
        for name, group in step.groups.items():
            for values in (group.reward, group.observation, group.final_observation):
                assert torch.isfinite(values.float()).all(), f"{name} has numbers that are not finite"

    def _exchange(self, connection: socket.socket, inbox: Inbox, data: bytes) -> list[Message]:
        """Sends bytes, steps, and returns the answers."""
        try:
            while data:
                data = data[connection.send(data) :]
        except OSError:  # the server has closed it, or does not read as fast
            pass
        answers = []
        for _ in range(2):
            self._step()
        try:
            while received := connection.recv(1 << 16):
                inbox.add(received)
        except OSError:
            pass
        while (answer := inbox.take()) is not None:
            answers.append(answer)
        return answers

    def _good_episode(self) -> None:
        """A good simulator plays an episode of three requests."""
        with self._connected() as connection:
            inbox, ops = Inbox(), []
            act, end = Message({"op": "act", "rewards": {"a_0": 1.0}}, ACT).pack(), Message({"op": "end"}).pack()
            for data in (_hello(self._open()), Message({"op": "begin"}).pack(), act, act, end):
                answers: list[Message] = []
                for _ in range(20):
                    answers += self._exchange(connection, inbox, data)
                    data = b""
                    if answers:
                        break
                ops += [answer.op for answer in answers]
            if ops != ["welcome", "started", "actions", "actions", "ended"]:
                raise WireError(f"a good simulator got {ops}")


def _hello(env: ExternalEnv) -> bytes:
    return Message({"op": "hello", "protocol": PROTOCOL, "token": env.token}).pack()


def _packed(message: Message) -> bytes:
    """A message with arrays that `Message.pack` accepts, whatever the protocol says about them."""
    arrays: dict[tuple[str, str], Any] = {key: np.ascontiguousarray(array) for key, array in message.arrays.items()}
    return Message(message.header, arrays).pack()
