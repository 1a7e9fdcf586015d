"""Client, a simulator's connection to a training run, evaluation or recording; and Episode, one episode on it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .agent import Agent
from .messages import (
    MAX_REWARD,
    PROTOCOL,
    SERVER_FILE,
    TOKEN_VARIABLE,
    ClientError,
    ConnectionRefused,
    EpisodeOver,
    Inbox,
    InvalidReport,
    Message,
    ServerGone,
    WireError,
)

RETRY_S = 0.1
MAX_PORT = 65535


class Client:
    """A connection to one training run, evaluation or recording. It plays one episode at a time; open one per episode.

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
            timeout_s: how long to keep trying. A training does not answer while it learns, so this must be longer than
                its updates take.
        Raises:
            ConnectionRefused: no server within that time, one that does not answer, or a wrong token.
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
        client._socket.settimeout(max(RETRY_S, deadline - time.monotonic()))
        try:
            client._greet(token or os.environ.get(TOKEN_VARIABLE) or file_token)
        except BaseException:
            client.close()
            raise
        client._socket.settimeout(None)  # later answers may wait while the training learns
        return client

    def begin_episode(self) -> Episode:
        """A new episode; waits until an env of the training is free.

        Raises:
            ClientError: the previous episode has not ended.
            ServerGone: the server has stopped.
        """
        if self._episode is not None and not self._episode.is_over and not self._is_closed:
            raise ClientError("the previous episode has not ended; call its end(...) first")
        reply = self.ask(Message({"op": "begin"}), "started")
        self._episode = Episode(self, int(reply.header["seed"]))
        return self._episode

    def ask(self, message: Message, expected: str) -> Message:
        """Sends one message and waits for the answer, even while the training learns.

        An exception meanwhile closes the connection: otherwise the next message would get the answer to this one.
        """
        data = message.pack()
        if self._is_closed:
            raise ServerGone(
                f"the connection to {self._address} is closed: a request was interrupted, or close() was called; "
                "connect again"
            )
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the reason may have arrived before
                self._socket.sendall(data)
            reply = self._receive()
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise ServerGone("it accepts connections and does not answer in time") from None
            if isinstance(error, OSError):
                raise ServerGone(f"the server at {self._address} is gone: {error}") from None
            raise
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

    @property
    def _is_closed(self) -> bool:
        return self._socket.fileno() < 0

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
            InvalidReport: an unknown agent, one whose episode has ended, or a sum beyond MAX_REWARD; nothing is added.
        """
        self._check_open()
        sums = dict(self._rewards)
        for name, value in rewards.items():
            self._check_living(name, "reward")
            try:
                sums[name] = sums.get(name, 0.0) + float(value)
            except (OverflowError, TypeError, ValueError):
                sums[name] = math.nan
            if not -MAX_REWARD <= sums[name] <= MAX_REWARD:
                raise InvalidReport(
                    f"reward of {name!r}: got {str(value)[:80]}; expected a finite number, and in total at most "
                    f"±{MAX_REWARD:g} between two requests"
                )
        self._rewards.update(sums)

    def end_agent(
        self, name: str, observation: Any = None, *, truncated: bool = False, action_mask: Any = None
    ) -> None:
        """Ends one agent's episode; when it is the last agent, the whole episode ends.

        Args:
            observation: its last observation; default: the one of its last request.
            truncated: cut off by a limit rather than ended by the rules.
            action_mask: its choices at the last observation, `[sum(n)]` of bool; default: those of its last request.
                Q-learning from a truncated episode needs it.
        """
        self._check_open()
        agent = self._check_living(name, "end")
        if not self._has_acted:
            raise InvalidReport(f"end of {name!r}: no agent has acted in this episode yet")
        if observation is not None:
            self._finals[name] = agent.observation(observation).copy()  # sent later; the caller may reuse its array
        if action_mask is not None:
            self._final_masks[name] = agent.mask(action_mask)
        self._ended[name] = bool(truncated)
        self.living.discard(name)
        if not self.living:
            self.end()

    def end(
        self,
        observations: Mapping[str, Any] | None = None,
        *,
        truncated: bool = False,
        action_masks: Mapping[str, Any] | None = None,
    ) -> None:
        """Ends the episode for all living agents.

        Args:
            observations: by agent, the last observations; default for an agent: the one of its last request.
            truncated: cut off by a limit rather than ended by the rules.
            action_masks: by agent, its choices at the last observation; default for an agent: those of its last
                request. Q-learning from a truncated episode needs them.
        """
        self._check_open()
        for name, value in (observations or {}).items():
            self._finals[name] = self._check_living(name, "end").observation(value)
        for name, value in (action_masks or {}).items():
            self._final_masks[name] = self._check_living(name, "end").mask(value)
        with contextlib.suppress(EpisodeOver):  # the other side has ended it already
            self._send(Message({"op": "end", "truncated": bool(truncated)}), "ended")
        self.is_over = True

    def _send(self, message: Message, expected: str) -> Message:
        message.header |= {"rewards": self._rewards, "ended": self._ended}
        for name, value in self._finals.items():
            message.arrays["final", name] = value
        for name, value in self._final_masks.items():
            message.arrays["final_mask", name] = value
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
        self._final_masks: dict[str, np.ndarray] = {}

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
        ConnectionRefused: no such port exists.
    """
    if address.startswith("unix:"):
        return address, None
    if re.fullmatch(r".+:\d+", address):
        if not 1 <= int(address.rpartition(":")[2]) <= MAX_PORT:
            raise ConnectionRefused(f"{address}: valid ports are 1 to {MAX_PORT}")
        return address, None
    path = Path(address).expanduser()
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
    return connection
