"""The client with which a simulator in a process of its own asks a training for actions and reports rewards.

    from marlnb.client import Client, EpisodeOver, ServerGone

    with Client.connect("runs/mine") as client:
        episode = client.begin_episode()
        actions = episode.act({"player_0": observation})
        episode.reward({"player_0": 1.0})
        episode.end({"player_0": last_observation})

It needs numpy and the standard library only, so it runs in the simulator's own Python; this one file may be copied
there. What travels is a JSON header and raw array bytes, both of bounded size; nothing received is ever executed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

PROTOCOL = 1
TOKEN_VARIABLE = "MARLNB_TOKEN"
SERVER_FILE = "server.json"
HEAD = struct.Struct("<4sII")  # magic, bytes of the header, bytes of the arrays
MAGIC = b"mnb1"
MOST_HEADER_BYTES = 1 << 20
MOST_BODY_BYTES = 1 << 28
DTYPES = ("float32", "int64", "uint8", "bool")
RETRY_S = 0.1


class ClientError(Exception):
    """What a simulator's side of the connection can raise."""


class ConnectionRefused(ClientError):
    """No server at the address within the time allowed, another protocol, or a token that is not the server's."""


class InvalidReport(ClientError):
    """Something sent is not what the environment's groups say: the message names what was found and what is wanted."""


class EpisodeOver(ClientError):
    """The other side ended this episode (a limit of steps, a new evaluation); begin another."""


class ServerGone(ClientError):
    """The training or evaluation has ended or died; connect again when there is another."""


class WireError(ClientError):
    """Bytes that are no message of this protocol."""


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
        return HEAD.pack(MAGIC, len(header), len(body)) + header + body


class Inbox:
    """Bytes as they arrive, cut into messages of at most these sizes."""

    def __init__(self, most_header: int = MOST_HEADER_BYTES, most_body: int = MOST_BODY_BYTES) -> None:
        self.most_header, self.most_body = most_header, most_body
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        self._bytes += data

    def take(self) -> Message | None:
        """The next whole message, None until it is there.

        Raises:
            WireError: the bytes are no message, or one that is too large.
        """
        if len(self._bytes) < HEAD.size:
            return None
        magic, n_header, n_body = HEAD.unpack_from(self._bytes)
        if magic != MAGIC:
            raise WireError(f"not a message of this protocol: it begins with {bytes(magic)!r}, not {MAGIC!r}")
        if n_header > self.most_header or n_body > self.most_body:
            raise WireError(
                f"a message of {n_header} + {n_body} bytes; at most {self.most_header} + {self.most_body} are taken"
            )
        whole = HEAD.size + n_header + n_body
        if len(self._bytes) < whole:
            return None
        data = bytes(self._bytes[HEAD.size : whole])
        del self._bytes[:whole]
        return _unpack(data[:n_header], data[n_header:])


def _unpack(header: bytes, body: bytes) -> Message:
    try:
        found = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a header that is not JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("op"), str):
        raise WireError("a header without an op")
    arrays, at = {}, 0
    for entry in _table(found.pop("arrays", [])):
        kind, agent, dtype, shape = entry
        size = np.dtype(dtype).itemsize
        for length in shape:
            size *= length
        if at + size > len(body):
            raise WireError(f"the {kind} of {agent!r} is cut short")
        array = np.frombuffer(body, np.dtype(dtype).newbyteorder("<"), size // np.dtype(dtype).itemsize, at)
        arrays[kind, agent] = array.reshape(shape)
        at += size
    if at != len(body):
        raise WireError(f"{len(body) - at} bytes that belong to no array")
    return Message(found, arrays)


def _table(entries: Any) -> list[tuple[str, str, str, list[int]]]:
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
            raise WireError(f"an array must be told as [kind, agent, dtype, shape]; got {str(entry)[:80]}")
        table.append((entry[0], entry[1], entry[2], entry[3]))
    return table


@dataclass(frozen=True)
class Agent:
    """What one agent sees and does, in plain terms; both ends check against it.

    Attributes:
        shape, dtype: of an observation.
        kind: discrete (an int in `[0, n[0])`), multi_discrete (`[component]`, component k in `[0, n[k])`) or
            continuous (`[component]` in `[low, high]`).
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
        """An observation in the shape and dtype asked for.

        Raises:
            InvalidReport: it has another shape, or values that the dtype cannot hold.
        """
        wanted = f"{self.dtype} of shape {list(self.shape)}"
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InvalidReport(f"observation of {self.name!r}: {error}; wanted {wanted}") from None
        found = f"{array.dtype.name} of shape {list(array.shape)}"
        if array.shape != self.shape or array.dtype.kind not in ("fiub" if self.dtype == "float32" else "iub"):
            raise InvalidReport(f"observation of {self.name!r}: got {found}; wanted {wanted}")
        if self.dtype != "float32" and array.dtype.name != self.dtype:
            bounds = (0, 1) if self.dtype == "bool" else (np.iinfo(self.dtype).min, np.iinfo(self.dtype).max)
            if array.size and (int(array.min()) < bounds[0] or int(array.max()) > bounds[1]):
                raise InvalidReport(f"observation of {self.name!r}: values beyond {bounds}; wanted {wanted}")
        with np.errstate(over="ignore"):  # what overflows is infinite, which is told next
            array = array.astype(self.dtype, copy=False)
        if self.dtype == "float32" and not np.isfinite(array).all():
            raise InvalidReport(f"observation of {self.name!r}: it holds numbers that are not finite; wanted {wanted}")
        return array

    def mask(self, value: Any) -> np.ndarray:
        """An action mask `[sum(n)]` of bool, with at least one choice of each component.

        Raises:
            InvalidReport: another shape, or no choice left.
        """
        array = np.asarray(value)
        if not self.has_mask:
            raise InvalidReport(f"action mask of {self.name!r}: its group {self.group!r} has none")
        if array.shape != (sum(self.n),):
            raise InvalidReport(
                f"action mask of {self.name!r}: got shape {list(array.shape)}; wanted [{sum(self.n)}], true if allowed"
            )
        array = array.astype(bool)
        ends = np.cumsum(self.n)
        if not all(part.any() for part in np.split(array, ends[:-1])):
            raise InvalidReport(f"action mask of {self.name!r}: it allows nothing; wanted a choice for each component")
        return array

    def action(self, array: np.ndarray) -> Any:
        return int(array) if self.kind == "discrete" else array.copy()


class Client:
    """A connection to one training, evaluation or recording. One episode at a time; open several for several.

    Attributes:
        agents: by name, what each sees and does.
    """

    def __init__(self, connection: socket.socket, address: str) -> None:
        self._socket, self._address = connection, address
        self._inbox = Inbox()
        self._episode: Episode | None = None
        self.agents: dict[str, Agent] = {}

    @staticmethod
    def connect(address: str | os.PathLike[str], token: str | None = None, *, timeout_s: float = 60.0) -> Client:
        """Connects, waiting for a server that is about to start.

        Args:
            address: the folder of a run (`runs/mine`; `runs/mine/evaluation` for evaluations and recordings), a
                `server.json`, "host:port" or "unix:/path".
            token: none: the variable MARLNB_TOKEN, else the one beside the address in `server.json`.
            timeout_s: how long to go on trying.
        Raises:
            ConnectionRefused: no server there in that time, or it does not take the token.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                where, found = _located(str(address))
                client = Client(_open(where, max(RETRY_S, deadline - time.monotonic())), where)
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise ConnectionRefused(f"no server at {address} after {timeout_s:g} s: {error}") from None
                time.sleep(RETRY_S)
        try:
            client._greet(token or os.environ.get(TOKEN_VARIABLE) or found)
        except BaseException:
            client.close()
            raise
        return client

    def begin_episode(self) -> Episode:
        """A new episode; waits until a copy of the environment is free.

        Raises:
            ClientError: the one before has not ended.
            ServerGone: the server is no more.
        """
        if self._episode is not None and not self._episode.is_over:
            raise ClientError("the episode before has not ended; call its end(...) first")
        reply = self.ask(Message({"op": "begin"}), "begun")
        self._episode = Episode(self, int(reply.header["seed"]))
        return self._episode

    def ask(self, message: Message, expected: str) -> Message:
        """Sends one message and waits for its answer, however long the learning in between takes."""
        try:
            self._socket.sendall(message.pack())
            reply = self._received()
        except OSError as error:
            raise ServerGone(f"the server at {self._address} is gone: {error}") from None
        if reply.op == "over":
            raise EpisodeOver(str(reply.header.get("message")))
        if reply.op == "error":
            raise InvalidReport(str(reply.header.get("message")))
        if reply.op != expected:
            raise WireError(f"answered {reply.op!r}, not {expected!r}")
        return reply

    def close(self) -> None:
        """Leaves; an episode under way is cut off at its last observation."""
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _greet(self, token: str | None) -> None:
        if not token:
            raise ConnectionRefused(f"{self._address}: no token given, in {TOKEN_VARIABLE} or in {SERVER_FILE}")
        try:
            reply = self.ask(Message({"op": "hello", "protocol": PROTOCOL, "token": token}), "welcome")
        except (InvalidReport, ServerGone) as error:
            raise ConnectionRefused(f"{self._address}: {error}") from None
        for name, about in reply.header["agents"].items():
            plain: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in about.items()
            }
            self.agents[name] = Agent(name=name, **plain)

    def _received(self) -> Message:
        while (message := self._inbox.take()) is None:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("it closed the connection")
            self._inbox.add(data)
        return message


class Episode:
    """One episode. Rewards and ends of single agents travel with the next request.

    Attributes:
        seed: the environment's seed for this episode; the same for the same training, copy and number of episode.
        living: the agents that have not ended.
    """

    def __init__(self, client: Client, seed: int) -> None:
        self.seed = seed
        self.living = set(client.agents)
        self.is_over = False
        self._client, self._agents = client, client.agents
        self._has_acted = False
        self._forget()

    def act(
        self, observations: Mapping[str, Any], action_masks: Mapping[str, Any] | None = None
    ) -> dict[str, int | np.ndarray]:
        """Actions of the agents that ask now; the others wait for their turns.

        Args:
            observations: by agent.
            action_masks: by agent, `[sum(n)]` of bool, for groups that have them; none: everything is allowed.
        Returns:
            by agent: an int, int64 `[component]` or float32 `[component]`, as the agent's `kind` says.
        Raises:
            InvalidReport: an agent, shape or value that is not as the groups say; nothing was sent.
            EpisodeOver: the other side ended the episode.
            ServerGone: the server is no more.
        """
        self._check_open()
        if not observations:
            raise InvalidReport("act() needs the observation of at least one agent")
        message = Message({"op": "act"})
        for name, value in observations.items():
            message.arrays["observation", name] = self._living(name, "observation").observation(value)
        for name, value in (action_masks or {}).items():
            if name not in observations:
                raise InvalidReport(f"action mask of {name!r}, who does not ask; {sorted(observations)} do")
            message.arrays["mask", name] = self._agents[name].mask(value)
        reply = self._tell(message, "actions")
        self._has_acted = True
        return {name: self._agents[name].action(reply.arrays["action", name]) for name in observations}

    def reward(self, rewards: Mapping[str, float]) -> None:
        """Adds to what agents have earned since they acted last.

        Raises:
            InvalidReport: an agent that is not there or has ended, or a number that is not finite.
        """
        self._check_open()
        for name, value in rewards.items():
            self._living(name, "reward")
            if not np.isfinite(value):
                raise InvalidReport(f"reward of {name!r}: got {value!r}; wanted a finite number")
        for name, value in rewards.items():
            self._rewards[name] = self._rewards.get(name, 0.0) + float(value)

    def end_agent(self, name: str, observation: Any = None, *, truncated: bool = False) -> None:
        """One agent's episode ends, the others' go on; when it is the last, the episode ends.

        Args:
            observation: what it saw last; none: what it saw when it asked last.
            truncated: cut off by a limit rather than ended by the rules.
        """
        self._check_open()
        agent = self._living(name, "end")
        if not self._has_acted:
            raise InvalidReport(f"end of {name!r}: nobody has acted in this episode yet")
        if observation is not None:
            self._finals[name] = agent.observation(observation)
        self._ended[name] = bool(truncated)
        self.living.discard(name)
        if not self.living:
            self.end()

    def end(self, observations: Mapping[str, Any] | None = None, *, truncated: bool = False) -> None:
        """The episode ends for all who live.

        Args:
            observations: by agent, what they saw last; of those not named, what they saw when they asked last.
            truncated: cut off by a limit rather than ended by the rules.
        """
        self._check_open()
        for name, value in (observations or {}).items():
            self._finals[name] = self._living(name, "end").observation(value)
        with contextlib.suppress(EpisodeOver):  # the other side ended it first
            self._tell(Message({"op": "end", "truncated": bool(truncated)}), "ended")
        self.is_over = True

    def _tell(self, message: Message, expected: str) -> Message:
        message.header |= {"rewards": self._rewards, "ended": self._ended}
        for name, value in self._finals.items():
            message.arrays["final", name] = value
        try:
            reply = self._client.ask(message, expected)
        except EpisodeOver:
            self.is_over = True
            raise
        self._forget()
        return reply

    def _forget(self) -> None:
        self._rewards: dict[str, float] = {}
        self._ended: dict[str, bool] = {}
        self._finals: dict[str, np.ndarray] = {}

    def _check_open(self) -> None:
        if self.is_over:
            raise EpisodeOver("this episode has ended; begin another")

    def _living(self, name: str, what: str) -> Agent:
        if name not in self._agents:
            raise InvalidReport(f"{what} of {name!r}: no such agent; there are {', '.join(self._agents)}")
        if name not in self.living:
            raise InvalidReport(f"{what} of {name!r}: its episode has ended; {', '.join(sorted(self.living))} live")
        return self._agents[name]


def _located(address: str) -> tuple[str, str | None]:
    """The address and the token behind a run's folder or a server's file.

    Raises:
        OSError: the file is not there yet.
    """
    if address.startswith("unix:") or re.fullmatch(r".+:\d+", address):
        return address, None
    path = Path(address)
    path = path if path.suffix == ".json" else path / SERVER_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return str(found["address"]), str(found["token"])
    except (ValueError, KeyError) as error:
        raise OSError(f"{path} is not a server's file: {error!r}") from None


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
