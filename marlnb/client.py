"""The client of a simulator that runs in another process: it asks a training for actions and reports rewards.

    from marlnb.client import Client, EpisodeOver, ServerGone

    with Client.connect("runs/mine") as client:
        episode = client.begin_episode()
        actions = episode.act({"player_0": observation})
        episode.reward({"player_0": 1.0})
        episode.end({"player_0": last_observation})

It needs only numpy and the standard library, so it runs in the simulator's own Python, and this one file may be copied
there. A message is a JSON header and raw array bytes, both of bounded size; nothing received is ever executed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PROTOCOL = 2  # 1 answered the begin of an episode with "begun"
TOKEN_VARIABLE = "MARLNB_TOKEN"
SERVER_FILE = "server.json"
HEADER = struct.Struct("<4sII")  # magic, bytes of the header, bytes of the arrays
MAGIC = b"mnb1"
MAX_HEADER_BYTES = 1 << 20
MAX_BODY_BYTES = 1 << 28
DTYPES = ("float32", "int64", "uint8", "bool")
RETRY_S = 0.1


class ClientError(Exception):
    """The root of the errors that a simulator's side of the connection raises."""


class ConnectionRefused(ClientError):
    """No server at the address within the timeout, another protocol, or a wrong token."""


class InvalidReport(ClientError):
    """A report does not match the environment's groups; the message says what was found and what is expected."""


class EpisodeOver(ClientError):
    """The other side ended this episode (a step limit, a new evaluation); begin another."""


class ServerGone(ClientError):
    """The training or evaluation has ended or crashed; connect again when there is another."""


class WireError(ClientError):
    """Bytes that are not a message of this protocol."""


@dataclass
class Message:
    """A header of plain JSON, and arrays by (kind, agent): observation, mask, final, action."""

    header: dict[str, Any]
    arrays: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    @property
    def op(self) -> str:
        return str(self.header.get("op"))

    def pack(self) -> bytes:
        parts = [(key, np.asarray(array)) for key, array in self.arrays.items()]
        table = [[*key, array.dtype.name, list(array.shape)] for key, array in parts]
        header = json.dumps({**self.header, "arrays": table}, allow_nan=False).encode()
        body = b"".join(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes() for _, array in parts)
        return HEADER.pack(MAGIC, len(header), len(body)) + header + body


class Inbox:
    """Collects bytes as they arrive, and cuts them into messages of at most these sizes."""

    def __init__(self, max_header: int = MAX_HEADER_BYTES, max_body: int = MAX_BODY_BYTES) -> None:
        self.max_header, self.max_body = max_header, max_body
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        self._bytes += data

    def take(self) -> Message | None:
        """The next complete message, or None until it has arrived.

        Raises:
            WireError: the bytes are not a message, or the message is too large.
        """
        if len(self._bytes) < HEADER.size:
            return None
        magic, n_header, n_body = HEADER.unpack_from(self._bytes)
        if magic != MAGIC:
            raise WireError(f"not a message of this protocol: it starts with {bytes(magic)!r} instead of {MAGIC!r}")
        if n_header > self.max_header or n_body > self.max_body:
            raise WireError(
                f"a message of {n_header} + {n_body} bytes; at most {self.max_header} + {self.max_body} are allowed"
            )
        n_total = HEADER.size + n_header + n_body
        if len(self._bytes) < n_total:
            return None
        data = bytes(self._bytes[HEADER.size : n_total])
        del self._bytes[:n_total]
        return _unpack(data[:n_header], data[n_header:])


def _unpack(header_bytes: bytes, body: bytes) -> Message:
    try:
        header = json.loads(header_bytes)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the header is not JSON: {error}") from None
    if not isinstance(header, dict) or not isinstance(header.get("op"), str):
        raise WireError("the header has no op")
    arrays, at = {}, 0
    for kind, agent, dtype, shape in _array_table(header.pop("arrays", [])):
        count = math.prod(shape)
        size = count * np.dtype(dtype).itemsize
        if at + size > len(body):
            raise WireError(f"the {kind} of {agent!r} is incomplete")
        arrays[kind, agent] = np.frombuffer(body, np.dtype(dtype).newbyteorder("<"), count, at).reshape(shape)
        at += size
    if at != len(body):
        raise WireError(f"{len(body) - at} bytes belong to no array")
    return Message(header, arrays)


def _array_table(entries: Any) -> list[tuple[str, str, str, list[int]]]:
    table: list[tuple[str, str, str, list[int]]] = []
    entry: Any
    for entry in entries if isinstance(entries, list) else [None]:
        well_formed = (
            isinstance(entry, list)
            and len(entry) == 4
            and all(isinstance(text, str) for text in entry[:3])
            and entry[2] in DTYPES
            and isinstance(entry[3], list)
            and len(entry[3]) <= 16
            and all(type(length) is int and 0 < length < 1 << 31 for length in entry[3])
        )
        if not well_formed:
            raise WireError(f"an array must be described as [kind, agent, dtype, shape]; got {str(entry)[:80]}")
        table.append((entry[0], entry[1], entry[2], entry[3]))
    return table


@dataclass(frozen=True)
class Agent:
    """One agent's observations and actions; both ends check messages against it.

    Attributes:
        name: of the agent.
        group: the name of its group.
        shape: of an observation.
        dtype: of an observation.
        kind: discrete (an int in `[0, n[0])`), multi_discrete (`[component]`, component k in `[0, n[k])`) or
            continuous (`[component]` in `[low, high]`).
        n: number of choices of each discrete component.
        low: of each continuous component.
        high: of each continuous component.
        has_mask: whether each request comes with an action mask of `sum(n)` booleans.
    """

    name: str
    group: str
    shape: tuple[int, ...]
    dtype: str
    kind: str
    n: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    has_mask: bool

    def observation(self, value: Any) -> np.ndarray:
        """The observation in the agent's shape and dtype.

        Raises:
            InvalidReport: another shape, or values that the dtype cannot hold.
        """
        expected = f"{self.dtype} of shape {list(self.shape)}"
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InvalidReport(f"observation of {self.name!r}: {error}; expected {expected}") from None
        got = f"{array.dtype.name} of shape {list(array.shape)}"
        if array.shape != self.shape or array.dtype.kind not in ("fiub" if self.dtype == "float32" else "iub"):
            raise InvalidReport(f"observation of {self.name!r}: got {got}; expected {expected}")
        if self.dtype != "float32" and array.dtype.name != self.dtype:
            bounds = (0, 1) if self.dtype == "bool" else (np.iinfo(self.dtype).min, np.iinfo(self.dtype).max)
            if array.size and (int(array.min()) < bounds[0] or int(array.max()) > bounds[1]):
                raise InvalidReport(f"observation of {self.name!r}: values beyond {bounds}; expected {expected}")
        with np.errstate(over="ignore"):  # an overflow becomes infinite, which is checked next
            array = array.astype(self.dtype, copy=False)
        if self.dtype == "float32" and not np.isfinite(array).all():
            raise InvalidReport(f"observation of {self.name!r}: some numbers are not finite; expected {expected}")
        return array

    def mask(self, value: Any) -> np.ndarray:
        """The action mask `[sum(n)]` of bool, with at least one allowed choice for each component.

        Raises:
            InvalidReport: another shape, or a component without an allowed choice.
        """
        array = np.asarray(value)
        if not self.has_mask:
            raise InvalidReport(f"action mask of {self.name!r}: its group {self.group!r} has none")
        if array.shape != (sum(self.n),):
            shape = list(array.shape)
            raise InvalidReport(f"action mask of {self.name!r}: got shape {shape}; expected [{sum(self.n)}]")
        array = array.astype(bool)
        if not all(part.any() for part in np.split(array, np.cumsum(self.n)[:-1])):
            raise InvalidReport(f"action mask of {self.name!r}: a component has no allowed choice")
        return array

    def action(self, array: np.ndarray) -> Any:
        return int(array) if self.kind == "discrete" else array.copy()


class Client:
    """A connection to one training, evaluation or recording. It plays one episode at a time; open one per episode.

    Attributes:
        agents: by name, the agents' observations and actions.
    """

    def __init__(self, connection: socket.socket, address: str) -> None:
        self._socket, self._address = connection, address
        self._inbox = Inbox()
        self._episode: Episode | None = None
        self.agents: dict[str, Agent] = {}

    @staticmethod
    def connect(address: str | os.PathLike[str], token: str | None = None, *, timeout_s: float = 60.0) -> Client:
        """Connects, and waits for a server that has not started yet.

        Args:
            address: the folder of a run (`runs/mine`; `runs/mine/evaluation` for evaluations and recordings), a
                `server.json`, "host:port" or "unix:/path".
            token: default: the variable MARLNB_TOKEN, else the one in `server.json`.
            timeout_s: how long to keep trying.
        Raises:
            ConnectionRefused: no server within that time, or a wrong token.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                endpoint, file_token = _locate(str(address))
                client = Client(_open(endpoint, max(RETRY_S, deadline - time.monotonic())), endpoint)
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise ConnectionRefused(f"no server at {address} after {timeout_s:g} s: {error}") from None
                time.sleep(RETRY_S)
        try:
            client._greet(token or os.environ.get(TOKEN_VARIABLE) or file_token)
        except BaseException:
            client.close()
            raise
        return client

    def begin_episode(self) -> Episode:
        """A new episode; waits until an env of the training is free.

        Raises:
            ClientError: the previous episode has not ended.
            ServerGone: the server has stopped.
        """
        if self._episode is not None and not self._episode.is_over:
            raise ClientError("the previous episode has not ended; call its end(...) first")
        reply = self.ask(Message({"op": "begin"}), "started")
        self._episode = Episode(self, int(reply.header["seed"]))
        return self._episode

    def ask(self, message: Message, expected: str) -> Message:
        """Sends one message and waits for the answer, even while the training learns."""
        try:
            self._socket.sendall(message.pack())
            reply = self._receive()
        except OSError as error:
            raise ServerGone(f"the server at {self._address} is gone: {error}") from None
        if reply.op == "over":
            raise EpisodeOver(str(reply.header.get("message")))
        if reply.op == "error":
            raise InvalidReport(str(reply.header.get("message")))
        if reply.op != expected:
            raise WireError(f"the server answered {reply.op!r}; expected {expected!r}")
        return reply

    def close(self) -> None:
        """Disconnects; an episode in progress is cut off at its last observation."""
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _greet(self, token: str | None) -> None:
        if not token:
            raise ConnectionRefused(f"{self._address}: no token in {TOKEN_VARIABLE} or {SERVER_FILE}; pass one")
        try:
            reply = self.ask(Message({"op": "hello", "protocol": PROTOCOL, "token": token}), "welcome")
        except (InvalidReport, ServerGone) as error:
            raise ConnectionRefused(f"{self._address}: {error}") from None
        for name, facts in reply.header["agents"].items():
            facts = {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}
            self.agents[name] = Agent(name=name, **facts)

    def _receive(self) -> Message:
        while (message := self._inbox.take()) is None:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._inbox.add(data)
        return message


class Episode:
    """One episode. Rewards and ends of single agents are sent with the next request.

    Attributes:
        seed: the environment's seed for this episode, a function of the training, the env and the episode number.
        living: the agents whose episodes have not ended.
    """

    def __init__(self, client: Client, seed: int) -> None:
        self.seed = seed
        self.living = set(client.agents)
        self.is_over = False
        self._client, self._agents = client, client.agents
        self._has_acted = False
        self._clear()

    def act(
        self, observations: Mapping[str, Any], action_masks: Mapping[str, Any] | None = None
    ) -> dict[str, int | np.ndarray]:
        """Actions for the agents that need one now; the others wait for their turns.

        Args:
            observations: by agent.
            action_masks: by agent, `[sum(n)]` of bool, for groups that have them; default: every choice is allowed.
        Returns:
            by agent: an int, int64 `[component]` or float32 `[component]`, as the agent's `kind` says.
        Raises:
            InvalidReport: an agent, shape or value that the groups do not allow; nothing was sent.
            EpisodeOver: the other side ended the episode.
            ServerGone: the server has stopped.
        """
        self._check_open()
        if not observations:
            raise InvalidReport("act() needs the observation of at least one agent")
        message = Message({"op": "act"})
        for name, value in observations.items():
            message.arrays["observation", name] = self._check_living(name, "observation").observation(value)
        for name, value in (action_masks or {}).items():
            if name not in observations:
                raise InvalidReport(f"action mask of {name!r}, which has no observation; got {sorted(observations)}")
            message.arrays["mask", name] = self._agents[name].mask(value)
        reply = self._send(message, "actions")
        self._has_acted = True
        return {name: self._agents[name].action(reply.arrays["action", name]) for name in observations}

    def reward(self, rewards: Mapping[str, float]) -> None:
        """Adds to the agents' rewards since they last acted.

        Raises:
            InvalidReport: an unknown agent, one whose episode has ended, or a number that is not finite.
        """
        self._check_open()
        sums = dict(self._rewards)
        for name, value in rewards.items():
            self._check_living(name, "reward")
            try:
                sums[name] = sums.get(name, 0.0) + float(value)
            except (OverflowError, TypeError, ValueError):
                sums[name] = math.nan
            if not math.isfinite(sums[name]):
                raise InvalidReport(f"reward of {name!r}: got {str(value)[:80]}; expected a finite number")
        self._rewards.update(sums)

    def end_agent(self, name: str, observation: Any = None, *, truncated: bool = False) -> None:
        """Ends one agent's episode; when it is the last agent, the whole episode ends.

        Args:
            observation: its last observation; default: the one of its last request.
            truncated: cut off by a limit rather than ended by the rules.
        """
        self._check_open()
        agent = self._check_living(name, "end")
        if not self._has_acted:
            raise InvalidReport(f"end of {name!r}: no agent has acted in this episode yet")
        if observation is not None:
            self._finals[name] = agent.observation(observation)
        self._ended[name] = bool(truncated)
        self.living.discard(name)
        if not self.living:
            self.end()

    def end(self, observations: Mapping[str, Any] | None = None, *, truncated: bool = False) -> None:
        """Ends the episode for all living agents.

        Args:
            observations: by agent, the last observations; default for an agent: the one of its last request.
            truncated: cut off by a limit rather than ended by the rules.
        """
        self._check_open()
        for name, value in (observations or {}).items():
            self._finals[name] = self._check_living(name, "end").observation(value)
        with contextlib.suppress(EpisodeOver):  # the other side has ended it already
            self._send(Message({"op": "end", "truncated": bool(truncated)}), "ended")
        self.is_over = True

    def _send(self, message: Message, expected: str) -> Message:
        message.header |= {"rewards": self._rewards, "ended": self._ended}
        for name, value in self._finals.items():
            message.arrays["final", name] = value
        try:
            reply = self._client.ask(message, expected)
        except EpisodeOver:
            self.is_over = True
            raise
        self._clear()
        return reply

    def _clear(self) -> None:
        self._rewards: dict[str, float] = {}
        self._ended: dict[str, bool] = {}
        self._finals: dict[str, np.ndarray] = {}

    def _check_open(self) -> None:
        if self.is_over:
            raise EpisodeOver("this episode has ended; begin another")

    def _check_living(self, name: str, what: str) -> Agent:
        if name not in self._agents:
            raise InvalidReport(f"{what} of {name!r}: no such agent; valid: {', '.join(self._agents)}")
        if name not in self.living:
            raise InvalidReport(f"{what} of {name!r}: its episode has ended; alive: {', '.join(sorted(self.living))}")
        return self._agents[name]


def _locate(address: str) -> tuple[str, str | None]:
    """The address and the token in a run's folder or a server's file.

    Raises:
        OSError: the file does not exist yet.
    """
    if address.startswith("unix:") or re.fullmatch(r".+:\d+", address):
        return address, None
    path = Path(address)
    path = path if path.suffix == ".json" else path / SERVER_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return str(content["address"]), str(content["token"])
    except (ValueError, KeyError) as error:
        raise OSError(f"{path} is not a valid server file: {error!r}") from None


def _open(address: str, timeout_s: float) -> socket.socket:
    if address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            connection.connect(address[len("unix:") :])
        except BaseException:
            connection.close()
            raise
    else:
        host, _, port = address.rpartition(":")
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(None)
    return connection
