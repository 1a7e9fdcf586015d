"""Clients that send what they should not: each is refused with a reason, and a good simulator plays on."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import random
import socket
import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch

from marlnb.client import Client, ClientError, InvalidReport
from marlnb.client.messages import HEADER, MAGIC, PROTOCOL, Inbox, Message
from marlnb.envs.external import server
from marlnb.envs.external.env import ExternalEnv
from tests.envs.external.test_env import GUARD_S, Simulator, actions, built

SEEN = np.ones(1, np.float32)


class Raw:
    """A connection that sends any bytes; with the token unless asked otherwise."""

    def __init__(self, env: ExternalEnv, *, hello: bool = True) -> None:
        host, _, port = env.address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=GUARD_S)
        self.hello = Message({"op": "hello", "protocol": PROTOCOL, "token": env.token}).pack()
        self.inbox = Inbox()
        if hello:
            self.send(self.hello)
            assert self.receive().op == "welcome"

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> Raw:
        """Sends the bytes, all of them unless the server has closed the connection meanwhile."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)
        return self

    def receive(self) -> Message:
        while (message := self.inbox.take()) is None:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                return Message({"op": "closed"})
            self.inbox.add(data)
        return message

    def reason(self) -> str:
        """The next reason that arrives."""
        while (message := self.receive()).op not in ("error", "closed"):
            pass
        return str(message.header.get("message", "closed"))


def begin(raw: Raw) -> Raw:
    raw.send(Message({"op": "begin"}).pack())
    assert raw.receive().op == "started"
    return raw


def act(**header: Any) -> bytes:
    """A request as JSON of Python's writes it, with NaN and infinities."""
    text = json.dumps({"op": "act", "arrays": [["observation", "boss", "float32", [1]]], **header}).encode()
    return HEADER.pack(MAGIC, len(text), 4) + text + SEEN.tobytes()


def numbers(value: float) -> bytes:
    return Message({"op": "act"}, {("observation", "boss"): np.array([value], np.float32)}).pack()


END = Message({"op": "end"}).pack()
UNKNOWN: dict[str, tuple[bytes, str]] = {
    "bytes": (b"GET / HTTP/1.1\r\n\r\n", "not a message of this protocol"),
    "size": (HEADER.pack(MAGIC, 1 << 30, 0), "at most 4096 + 0 are allowed"),
    "no token": (Message({"op": "hello", "protocol": PROTOCOL}).pack(), "must be a hello with the token"),
    "number": (Message({"op": "hello", "protocol": PROTOCOL, "token": 7}).pack(), "must be a hello with the token"),
    "another": (
        Message({"op": "hello", "protocol": PROTOCOL, "token": "0" * 32}).pack() + act() + END,  # a replay
        "the token is not this server's",
    ),
    "slow": (MAGIC[:1], "no hello with the token within 0.5 s"),
}
SIMULATORS: dict[str, tuple[bytes, str]] = {
    "million bytes": (HEADER.pack(MAGIC, 10, 1_000_000) + bytes(1_000_000), "a message of 10 + 1000000 bytes"),
    "garbage": (bytes(range(256)), "not a message of this protocol"),
    "nan reward": (act(rewards={"boss": float("nan")}), "reward of 'boss': got nan"),
    "infinite reward": (act(rewards={"boss": float("inf")}), "reward of 'boss': got inf"),
    "huge reward": (act(rewards={"boss": 1e30}), "reward of 'boss': got 1e+30; expected a number of at most ±1e+12"),
    "nan observation": (numbers(float("nan")), "observation of 'boss': some numbers are not finite"),
    "infinite observation": (numbers(float("inf")), "observation of 'boss': some numbers are not finite"),
    "replay": (act() + act() + act() + END, "'act' before the actions of the last request were sent"),
    "again and again": (act(ended=3) * 200, "disconnected after 100 invalid messages in a row"),
}


def attack(env: ExternalEnv) -> dict[str, str]:
    """The reason that each hostile client received."""
    reasons = {}
    for name, (data, _) in UNKNOWN.items():
        with Raw(env, hello=False) as raw:
            reasons[name] = raw.send(data).reason()
    for name, (data, reason) in SIMULATORS.items():
        with Raw(env) as raw:
            begin(raw).send(data)
            while reason not in (message := raw.reason()) and message != "closed":
                pass
            reasons[name] = message
    for data in (b"", act()[:10], act()[:-2], act()):  # gone in the middle of a message, or before the answer
        with Raw(env) as raw:
            begin(raw).send(data)
    random_messages(env, 300)
    return reasons


def random_messages(env: ExternalEnv, n: int) -> None:
    """Messages of this protocol, with random contents; a connection that was closed is opened again."""
    draw = random.Random(0)
    values: list[Any] = [0, -1, 10**30, 0.5, True, None, "", "boss", [], [1], {}, {"boss": 0}, {"x": {}}, "\ud800"]
    shapes: list[tuple[int, ...]] = [(), (1,), (2,), (3,), (1, 1)]
    arrays = [np.zeros(shape, dtype) for shape in shapes for dtype in ("float32", "uint8", "bool")]
    raw = Raw(env)
    for _ in range(n):
        header = {key: draw.choice(values) for key in ("rewards", "ended", "truncated", "x") if draw.random() < 0.4}
        names = [
            (
                draw.choice(("observation", "mask", "final", "final_mask", "action", "?")),
                draw.choice(("boss", "a_0", "a_1", "?")),
            )
        ]
        message = Message(
            {**header, "op": draw.choice(("begin", "act", "act", "end", "hello", "?"))},
            {name: draw.choice(arrays) for name in names * (draw.random() < 0.8)},
        )
        raw.send(message.pack())
        if raw.receive().op in ("closed", "over"):
            raw.socket.close()
            raw = Raw(env)
    raw.socket.close()


def test_training_continues_with_the_others(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The good simulator's rewards are all that is learned from."""
    monkeypatch.setattr(server, "GREETING_S", 0.5)
    reasons: dict[str, str] = {}
    over = threading.Event()
    n_rewards = 0

    def play(client: Client) -> None:
        nonlocal n_rewards
        while not over.is_set():
            episode = client.begin_episode()
            for k in range(3):
                assert episode.act({"boss": [k], "a_1": [k, 0]}) == {"boss": np.float32([0.5]), "a_1": 1}
                episode.reward({"boss": 1.0})
                n_rewards += 1
            episode.end()
        env.interrupt()

    def attack_all() -> None:
        try:
            reasons.update(attack(env))
        finally:
            over.set()

    with built(2, deadline_s=0.2) as env:
        env.reset(0)
        good = Simulator(env, play)
        threading.Thread(target=attack_all, daemon=True).start()
        total = 0.0
        while good.is_alive():
            step = env.step(actions(env))
            for group in step.groups.values():
                assert group.reward.isfinite().all() and group.observation.isfinite().all()
            total += float(step.groups["b"].reward.sum())
        good.join()
        token = env.token
    expected = {name: reason for name, (_, reason) in {**UNKNOWN, **SIMULATORS}.items()}
    assert {name: reasons[name] for name in expected if expected[name] not in reasons[name]} == {}
    assert total == n_rewards > 100
    output = capfd.readouterr()
    assert token not in output.out + output.err + str(reasons)


def test_the_client_learns_why_the_server_closed_the_connection_while_it_was_sending() -> None:
    def play(client: Client) -> None:
        client.begin_episode()
        large = Message({"op": "act"}, {("observation", "boss"): np.zeros(8_000_000, np.float32)})
        try:
            with pytest.raises(InvalidReport, match=r"a message of [0-9]+ \+ 32000000 bytes"):
                client.ask(large, "actions")
        finally:
            env.interrupt()

    with built() as env:
        env.reset(0)
        simulator = Simulator(env, play)
        while simulator.is_alive():
            env.step(actions(env))
        simulator.join()


def test_the_token_is_compared_in_constant_time_and_goes_nowhere_else() -> None:
    """In the server's code, the token is assigned once, and is otherwise an argument of `hmac.compare_digest` only."""
    tree = ast.parse(inspect.getsource(server))
    uses = {node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "_token"}
    assigned = {node for node in uses if isinstance(node.ctx, ast.Store)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    compared = {argument for call in calls if ast.unparse(call.func) == "hmac.compare_digest" for argument in call.args}
    assert len(assigned) == len(uses & compared) == 1 and uses == assigned | (uses & compared)


def test_512_connections_do_not_keep_a_simulator_out() -> None:
    with built() as env, ExitStack() as stack:
        env.reset(0)
        connections = [stack.enter_context(Raw(env, hello=False)) for _ in range(512)]
        simulator = Simulator(env, lambda client: client.begin_episode().act({"boss": [1.0]}))  # type: ignore[arg-type]
        assert env.step(actions(env)).groups["b"].acting.all()
        env.step(actions(env))
        simulator.join()
        assert connections[0].reason() == "too many connections without a token; connect again"
        assert len(env._open_server()._unknown()) <= server.MAX_UNKNOWN


def test_a_simulator_that_no_longer_asks_makes_room() -> None:
    """It has the only place, and another one waits."""
    reasons = []

    def stop_asking() -> None:
        with Raw(env) as raw:
            reasons.append(begin(raw).send(act()).reason())

    def play(client: Client) -> None:
        episode = client.begin_episode()
        episode.act({"boss": [2.0]})
        episode.end()

    with built(timeout_s=0.5, deadline_s=0.1) as env:
        env.reset(0)
        silent = threading.Thread(target=stop_asking, daemon=True)
        silent.start()
        step = env.step(actions(env))
        assert step.groups["b"].observation.tolist() == [[[1]]]
        simulator = Simulator(env, play)
        done = []
        while len(done) < 2:
            step = env.step(actions(env))
            if step.done.any():
                done.append((bool(step.groups["b"].truncated), step.groups["b"].final_observation.tolist()))
        simulator.join()
        silent.join(GUARD_S)
    assert done == [(True, [[[1]]]), (False, [[[2]]])]
    assert reasons == ["no request for 0.5 s, while other simulators wait"]


def test_the_others_do_not_wait_for_one_that_sends_nonsense() -> None:
    """They would wait for `deadline_s`, longer than the test."""
    refused = threading.Event()

    def nonsense(client: Client) -> None:
        client.begin_episode()
        with pytest.raises(ClientError, match="expected true or false"):
            client.ask(Message({"op": "act", "ended": {"boss": 3}}), "never")
        refused.set()
        over.wait(GUARD_S)

    def play(client: Client) -> None:
        refused.wait(GUARD_S)
        episode = client.begin_episode()
        for _ in range(3):
            episode.act({"boss": [1.0]})
        episode.end()

    over = threading.Event()
    with built(2) as env:
        env.reset(0)
        simulators = [Simulator(env, nonsense), Simulator(env, play)]
        ended = torch.zeros(2, dtype=torch.int64)
        while int(ended.sum()) < 1:
            ended += env.step(actions(env)).done
        over.set()
        for simulator in simulators:
            simulator.join()
