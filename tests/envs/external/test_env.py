"""Places for simulators' episodes, number by number: the environment is stepped here, a simulator plays in a thread."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.turns import own_turns
from marlnb.client import Client, ConnectionRefused, EpisodeOver, InvalidReport, ServerGone, WireError
from marlnb.client.messages import HEADER, MAGIC, Inbox, Message
from marlnb.codec import from_json
from marlnb.config import EnvConfig, LearnerContext
from marlnb.envs.external.config import ExternalConfig
from marlnb.envs.external.env import ExternalEnv
from marlnb.envs.external.interface import evaluation_config, publish_evaluation
from marlnb.envs.external.options import ExternalGroup
from marlnb.errors import ConfigError, EnvError, RunError
from marlnb.experiment import Experiment
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.training.collect.rollout import Collector
from marlnb.training.runs.comparable import check_same
from marlnb.training.runs.run_folder import RunFolder

GROUPS = {
    "a": ExternalGroup(agents=2, observation=(2,), actions=3, action_mask=True),
    "b": ExternalGroup(agents=("boss",), observation=(1,), low=(-1.0,), high=(2.0,)),
}


GUARD_S = 100.0
"""After which a test that hangs is given up."""


def built(n_envs: int = 1, **options: object) -> ExternalEnv:
    """Waits for the simulators however slow the machine is: no outcome depends on time."""
    options = {"groups": GROUPS, "timeout_s": GUARD_S, "deadline_s": GUARD_S, **options}
    env = ExternalConfig(**options).build(n_envs)  # type: ignore[arg-type]
    assert isinstance(env, ExternalEnv)
    return env


def actions(env: ExternalEnv, a: int = 1, b: float = 0.5) -> dict[str, torch.Tensor]:
    return {
        "a": torch.full((env.n_envs, 2), a, dtype=torch.int64),
        "b": torch.full((env.n_envs, 1, 1), b, dtype=torch.float32),
    }


class Simulator(threading.Thread):
    """Runs a function on a client of its own; `join` raises what it raised."""

    def __init__(self, env: ExternalEnv, play: Callable[[Client], None]) -> None:
        super().__init__(daemon=True)
        self._env, self._play, self._error = env, play, None
        self.start()

    def run(self) -> None:
        try:
            with Client.connect(self._env.address, self._env.token, timeout_s=GUARD_S) as client:
                self._play(client)
        except BaseException as error:
            self._error = error

    def join(self, timeout: float | None = GUARD_S) -> None:
        super().join(timeout)
        assert not self.is_alive()
        if self._error is not None:
            raise self._error


def test_an_episode_number_by_number() -> None:
    seen: dict[str, object] = {}

    def play(client: Client) -> None:
        episode = client.begin_episode()
        seen["seed"] = episode.seed
        episode.reward({"a_0": 0.25})  # before anybody acts: belongs to the first action
        seen["first"] = episode.act({"a_0": [1, 2], "boss": [7.0]}, action_masks={"a_0": [1, 1, 0]})
        episode.reward({"a_0": 1.0, "boss": -1.0})
        episode.reward({"a_0": 0.5})
        seen["second"] = episode.act({"a_1": [3, 4]})
        episode.reward({"a_1": 2.0})
        last = np.float32([9, 9])
        episode.end_agent("a_0", last)
        last[:] = 10  # the simulator uses its buffer again
        seen["third"] = episode.act({"boss": [8.0]})
        episode.reward({"boss": 4.0, "a_1": 8.0})
        episode.end({"boss": [6.0]}, truncated=True)

    with built() as env:
        env.reset(41)
        simulator = Simulator(env, play)
        step = env.step(actions(env))  # no agent acts yet
        a, b = step.groups["a"], step.groups["b"]
        assert a.acting.tolist() == [[True, False]] and b.acting.tolist() == [[True]]
        assert a.observation.tolist() == [[[1, 2], [0, 0]]] and b.observation.tolist() == [[[7]]]
        assert a.action_mask.tolist() == [[[True, True, False], [True, True, True]]]
        assert a.alive.all() and not a.reward.any() and step.episode_seed.tolist() == [41]
        env.step(actions(env, a=0, b=5.0))  # beyond its bounds: clipped
        assert seen["first"] == {"a_0": 0, "boss": np.float32([2.0])}
        assert a.reward.tolist() == [[1.75, 0]] and b.reward.tolist() == [[-1]]
        assert a.acting.tolist() == [[False, True]] and not b.acting.any()
        assert a.observation.tolist() == [[[1, 2], [3, 4]]]
        env.step(actions(env, a=2))
        assert seen["second"] == {"a_1": 2}
        assert a.reward.tolist() == [[0, 2]] and a.terminated.tolist() == [[True, False]]
        assert a.final_observation[0, 0].tolist() == [9, 9] and a.observation.tolist() == [[[0, 0], [3, 4]]]
        assert a.alive.tolist() == [[False, True]] and not step.done.any()
        env.step(actions(env))
        assert step.done.tolist() == [True] and step.episode_seed.tolist() == [42]
        assert a.reward.tolist() == [[0, 8]] and b.reward.tolist() == [[4]]
        assert a.truncated.tolist() == [[False, True]] and b.truncated.tolist() == [[True]]
        assert not a.terminated.any() and not b.terminated.any()
        assert a.final_observation[0, 1].tolist() == [3, 4] and b.final_observation.tolist() == [[[6]]]
        assert a.alive.all() and not a.acting.any() and not a.observation.any()
        simulator.join()
        assert seen["seed"] == 41


@pytest.mark.parametrize(
    ("how", "max_steps", "expected"),
    [
        ("without", None, [True, True, False]),  # that of its last request
        ("with", None, [False, True, False]),
        ("agent", None, [False, False, True]),
        ("limit", 1, [False, True, True]),  # that of the request which is not answered
        ("limit without", 1, [True, True, True]),
    ],
)
def test_the_action_masks_of_a_truncated_episode(how: str, max_steps: int | None, expected: list[bool]) -> None:
    def play(client: Client) -> None:
        episode = client.begin_episode()
        episode.act({"a_0": [1, 2]}, action_masks={"a_0": [1, 1, 0]})
        if how.startswith("limit"):
            with pytest.raises(EpisodeOver):
                episode.act({"a_0": [3, 4]}, None if "without" in how else {"a_0": [0, 1, 1]})
            return
        if how == "agent":
            episode.end_agent("a_0", [3, 4], truncated=True, action_mask=[0, 0, 1])
        episode.end({}, truncated=True, action_masks={"a_0": [0, 1, 0]} if how == "with" else None)

    with built(max_steps=max_steps) as env:
        env.reset(0)
        simulator = Simulator(env, play)
        env.step(actions(env))
        rows = env.step(actions(env)).groups["a"]
        assert rows.final_action_mask is not None and rows.truncated[0].tolist() == [True, True]
        assert rows.final_action_mask[0].tolist() == [expected, [True, True, True]]
        simulator.join()


def test_episodes_are_balanced_over_copies() -> None:
    seeds: list[int] = []

    def play(client: Client) -> None:
        for _ in range(5):
            episode = client.begin_episode()
            seeds.append(episode.seed)
            episode.act({"boss": [0.0]})
            episode.end()

    with built(2) as env:
        env.reset(100)
        simulator = Simulator(env, play)
        ended = torch.zeros(2, dtype=torch.int64)
        while int(ended.sum()) < 5:
            ended += env.step(actions(env)).done
        simulator.join()
    assert seeds == [100, 101, 102, 103, 104] and ended.tolist() == [3, 2]


def test_a_simulator_that_goes_is_cut_off_and_another_takes_its_place() -> None:
    def leave(client: Client) -> None:
        client.begin_episode().act({"boss": [5.0]})

    def stay(client: Client) -> None:
        episode = client.begin_episode()
        episode.act({"boss": [6.0]})
        episode.end()

    with built() as env:
        env.reset(0)
        first = Simulator(env, leave)
        env.step(actions(env))
        step = env.step(actions(env))
        first.join()
        assert step.done.all() and step.groups["b"].truncated.all() and step.groups["a"].truncated.all()
        assert step.groups["b"].final_observation.tolist() == [[[5]]]
        second = Simulator(env, stay)
        env.step(actions(env))
        assert step.groups["b"].observation.tolist() == [[[6]]] and not step.done.any()
        env.step(actions(env))
        assert step.done.all() and step.groups["b"].terminated.all()
        second.join()


def test_one_that_leaves_before_anybody_acted_leaves_no_trace() -> None:
    with built() as env:
        env.reset(3)
        gone = threading.Event()

        def begin(client: Client) -> None:
            assert client.begin_episode().seed == 3
            gone.set()

        def play(client: Client) -> None:
            gone.wait(GUARD_S)
            episode = client.begin_episode()
            assert episode.seed == 3
            episode.act({"boss": [1.0]})
            episode.end()

        simulators = [Simulator(env, begin), Simulator(env, play)]
        step = env.step(actions(env))
        assert not step.done.any() and step.groups["b"].observation.tolist() == [[[1]]]
        assert env.step(actions(env)).done.all()
        for simulator in simulators:
            simulator.join()


def test_the_others_wait_once_for_a_slow_one() -> None:
    go_on = threading.Event()

    def slow(client: Client) -> None:
        episode = client.begin_episode()
        episode.act({"boss": [1.0]})
        go_on.wait(GUARD_S)
        episode.end()

    def fast(client: Client) -> None:
        episode = client.begin_episode()
        for k in range(10):
            episode.act({"boss": [k]})
        go_on.wait(GUARD_S)
        episode.end()

    with built(2, deadline_s=0.3) as env:
        env.reset(0)
        simulators = [Simulator(env, slow), Simulator(env, fast)]
        rows = env.step(actions(env)).groups["b"]
        while not rows.acting.all():  # until both are there
            env._wait()
        before = time.monotonic()
        for k in range(1, 10):
            assert not env.step(actions(env)).done.any()
            assert sorted(rows.observation.flatten().tolist()) == sorted([1.0, k])
            assert rows.acting.sum() == 1
        assert time.monotonic() - before >= 0.3  # once; no test of how much longer on a busy machine
        go_on.set()
        ended = torch.zeros(2, dtype=torch.int64)
        while int(ended.sum()) < 2:
            ended += env.step(actions(env)).done
        assert ended.tolist() == [1, 1]
        for simulator in simulators:
            simulator.join()


def test_truncated_episodes_are_learned_from_next_to_an_env_without_a_simulator() -> None:
    """Each episode is one action and a truncation."""

    def play(client: Client) -> None:
        with contextlib.suppress(ServerGone):
            while True:
                episode = client.begin_episode()
                episode.act({"p_0": [1.0]})
                episode.reward({"p_0": 3.0})
                episode.end(truncated=True)

    with built(2, groups={"p": ExternalGroup(observation=(1,), actions=2)}) as env:
        model, group = MLPConfig(hidden=(4,)), env.spec.groups[0]
        learner = IPPOConfig().build(LearnerContext(group, env.spec, model, model, 2, 8))
        collector = Collector(env, {"p": learner.policy}, 8, generator=torch.Generator().manual_seed(0))
        collector.reset(0)
        simulator = Simulator(env, play)
        rollout = collector.collect()
    simulator.join()
    acting, truncated = rollout["p", "acting"], rollout["next", "p", "truncated"].squeeze(-1)
    assert acting.sum() == 7 and torch.equal(acting, truncated)  # one env at a time, and none at first
    assert torch.equal(rollout["paused"], ~acting)
    turns = own_turns(rollout, group)
    assert torch.equal(turns["p", "acting"], acting) and (turns["next", "p", "reward"][acting] == 3).all()
    assert learner.update(rollout)["value_loss"] > 0


def test_longer_episodes_are_truncated_and_the_simulator_is_notified() -> None:
    def play(client: Client) -> None:
        episode = client.begin_episode()
        episode.act({"boss": [1.0]})
        episode.reward({"boss": 1.0})
        episode.act({"boss": [2.0]})
        with pytest.raises(EpisodeOver, match="after 2 requests, as max_steps says"):
            episode.act({"boss": [3.0]})
        with pytest.raises(EpisodeOver, match="begin another"):
            episode.act({"boss": [3.0]})
        client.begin_episode()

    with built(max_steps=2) as env:
        assert env.spec.max_steps == 2 and not env.spec.simultaneous
        env.reset(0)
        simulator = Simulator(env, play)
        done = [bool(env.step(actions(env)).done) for _ in range(3)]
        assert done == [False, False, True]
        assert env._cpu_step.groups["b"].truncated.all() and env._cpu_step.groups["b"].final_observation.tolist() == [
            [[3]]
        ]
        simulator.join()


def test_a_reset_tells_that_the_episode_is_over() -> None:
    def play(client: Client) -> None:
        with pytest.raises(EpisodeOver, match="the environment was reset"):
            client.begin_episode().act({"boss": [1.0]})
        episode = client.begin_episode()
        assert episode.seed == 70
        episode.act({"boss": [2.0]})
        episode.end()

    with built() as env:
        env.reset(0)
        simulator = Simulator(env, play)
        assert env.step(actions(env)).groups["b"].acting.all()
        step = env.reset(70)
        assert not step.groups["b"].acting.any() and not step.done.any()
        env.step(actions(env))
        assert step.groups["b"].observation.tolist() == [[[2]]] and not step.done.any()
        assert env.step(actions(env)).done.all()
        simulator.join()


def test_restored_it_continues_as_if_every_simulator_had_died() -> None:
    def play(client: Client) -> None:
        episode = client.begin_episode()
        episode.act({"boss": [1.0]})
        episode.act({"boss": [2.0]})

    with built(2) as env:
        env.reset(5)
        Simulator(env, play)
        env.step(actions(env))
        env.step(actions(env))
        saved = env.state_dict()
        assert saved is not None
    with built(2) as env:
        step = env.load_state_dict(saved)
        assert step.groups["b"].observation[0].tolist() == [[2]] and not step.groups["b"].acting.any()
        assert step.episode_seed.tolist() == [5, 6]
        env.step(actions(env))
        assert step.done.tolist() == [True, False] and step.episode_seed.tolist() == [7, 6]
        assert step.groups["b"].truncated.tolist() == [[True], [False]]
        assert step.groups["b"].final_observation[0].tolist() == [[2]]


def test_restored_an_episode_without_an_action_leaves_no_trace() -> None:
    def begin_another(client: Client) -> None:
        episode = client.begin_episode()
        episode.act({"boss": [1.0]})
        episode.end()
        with pytest.raises(ServerGone):
            client.begin_episode().act({"boss": [2.0]})

    def play(client: Client) -> None:
        episode = client.begin_episode()
        assert episode.seed == 6
        episode.act({"boss": [3.0]})

    with built() as env:
        env.reset(5)
        first = Simulator(env, begin_another)
        env.step(actions(env))
        assert env.step(actions(env)).groups["b"].observation.tolist() == [[[2]]]
        saved = env.state_dict()
        assert saved is not None
    first.join()
    with built() as env:
        step = env.load_state_dict(saved)
        assert step.episode_seed.tolist() == [6] and not step.groups["b"].observation.any()
        second = Simulator(env, play)
        env.step(actions(env))
        assert not step.done.any() and step.groups["b"].observation.tolist() == [[[3]]]
        env.step(actions(env))
        second.join()


def test_who_does_not_know_the_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARLNB_TOKEN", "the right one")
    with built() as env:
        env.reset(0)

        done = threading.Event()

        def unknown_clients() -> None:
            for token in ("wrong", "the right on", "ü"):
                with pytest.raises(ConnectionRefused, match="the token is not this server's"):
                    Client.connect(env.address, token, timeout_s=GUARD_S)
            with monkeypatch.context() as old:
                old.setattr("marlnb.client.connection.PROTOCOL", 1)
                message = "speaks protocol 1, this server 2; copy the folder marlnb/client again"
                with pytest.raises(ConnectionRefused, match=message):
                    Client.connect(env.address, timeout_s=GUARD_S)
            host, port = env.address.split(":")
            for data in (b"GET / HTTP/1.1\r\n\r\n", HEADER.pack(MAGIC, 1 << 30, 0), Message({"op": "begin"}).pack()):
                with socket.create_connection((host, int(port))) as sock:
                    sock.sendall(data)
                    sock.settimeout(GUARD_S)
                    while sock.recv(4096):
                        pass
            with Client.connect(env.address, timeout_s=GUARD_S) as client:  # by the variable
                client.begin_episode().act({"boss": [1.0]})
            done.set()

        thread = threading.Thread(target=unknown_clients, daemon=True)
        thread.start()
        env.step(actions(env))
        env.step(actions(env))
        thread.join(GUARD_S)
        assert done.is_set()


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (
            lambda e: e.act({"a_0": [1, 2, 3]}),
            r"observation of 'a_0': got int64 of shape \[3\]; expected float32 of .*\[2\]",
        ),
        (lambda e: e.act({"a_0": ["x", "y"]}), r"observation of 'a_0': got str.* expected float32 of shape \[2\]"),
        (lambda e: e.act({"a_0": [1, np.nan]}), r"observation of 'a_0': some numbers are not finite"),
        (lambda e: e.act({"c_0": [1]}), r"observation of 'c_0': no such agent; valid: a_0, a_1, boss"),
        (lambda e: e.act({}), r"at least one agent"),
        (lambda e: e.act({"a_0": [1, 2]}, {"a_0": [1, 0]}), r"action mask of 'a_0': got shape \[2\]; expected \[3\]"),
        (
            lambda e: e.act({"a_0": [1, 2]}, {"a_0": [0, 0, 0]}),
            r"action mask of 'a_0': a component has no allowed choice",
        ),
        (lambda e: e.act({"boss": [1]}, {"boss": [1]}), r"action mask of 'boss': its group 'b' has none"),
        (lambda e: e.act({"boss": [1]}, {"a_0": [1, 1, 1]}), r"action mask of 'a_0', which has no observation"),
        (lambda e: e.reward({"boss": float("inf")}), r"reward of 'boss': got inf; expected a finite number"),
        (
            lambda e: e.reward({"boss": -5e12}),
            r"reward of .boss.: got -5000000000000.0; .* at most ±1e\+12",
        ),
        (lambda e: [e.reward({"boss": 9e11}), e.reward({"boss": 2e11})], r"reward of 'boss': got 200000000000.0;"),
        (lambda e: e.reward({"bos": 1}), r"reward of 'bos': no such agent"),
        (lambda e: e.end_agent("boss"), r"no agent has acted in this episode yet"),
        (lambda e: e.end({"boss": [1, 2]}), r"observation of 'boss': got int64 of shape \[2\]; expected .* \[1\]"),
    ],
)
def test_an_invalid_report_raises_where_it_is_sent(report: Callable[[object], object], message: str) -> None:
    def play(client: Client) -> None:
        episode = client.begin_episode()
        with pytest.raises(InvalidReport, match=message):
            report(episode)
        episode.act({"boss": [1.0]})  # the episode continues

    with built() as env:
        env.reset(0)
        simulator = Simulator(env, play)
        assert env.step(actions(env)).groups["b"].acting.all()
        env.step(actions(env))
        simulator.join()


@pytest.mark.parametrize(
    ("header", "arrays", "message"),
    [
        (
            {},
            {("observation", "boss"): np.zeros((2, 3), np.float32)},
            r"'boss': got float32 of .*\[2, 3\]; expected",
        ),
        ({}, {("observation", "missing"): np.zeros(1, np.float32)}, r"observation of 'missing': no such agent"),
        ({}, {("mask", "a_0"): np.ones(3, bool)}, r"at least one agent"),
        ({}, {("action", "boss"): np.ones(1, np.float32)}, r"action of 'boss' does not belong in 'act'"),
        ({"rewards": {"boss": 10**400}}, {}, r"reward of 'boss': got 1000"),
        ({"rewards": {"boss": True}}, {}, r"reward of 'boss': got True"),
        ({"rewards": {"no": 1}}, {}, r"rewards of 'no', which is not alive; alive: a_0, a_1, boss"),
        ({"rewards": [1]}, {}, r"rewards must be by agent"),
        ({"ended": {"boss": 1}}, {}, r"whether 'boss' was truncated: got 1; expected true or false"),
        ({"ended": {"boss": True}}, {}, r"no agent has acted"),
        ({"op": "begin"}, {}, r"'begin' within an episode; valid: begin, act, end"),
        ({"op": "dance"}, {}, r"'dance' within an episode"),
    ],
)
def test_the_server_trusts_no_client(header: dict[str, object], arrays: dict, message: str) -> None:
    """The same checks where a client of another make sends what it likes."""

    def play(client: Client) -> None:
        client.begin_episode()
        request = Message({"op": "act", **header}, arrays)
        with pytest.raises(InvalidReport, match=message):
            client.ask(request, "never")
        client._episode.act({"boss": [1.0]})  # type: ignore[union-attr]

    with built() as env:
        env.reset(0)
        simulator = Simulator(env, play)
        assert env.step(actions(env)).groups["b"].acting.all()
        env.step(actions(env))
        simulator.join()


def test_a_reward_beyond_all_numbers() -> None:
    """JSON as Python reads it has infinities."""
    header = b'{"op": "act", "rewards": {"boss": 1e400}}'

    def play(client: Client) -> None:
        client.begin_episode()
        client._socket.sendall(HEADER.pack(MAGIC, len(header), 0) + header)
        assert "reward of 'boss': got inf" in client._receive().header["message"]
        client._episode.act({"boss": [1.0]})  # type: ignore[union-attr]

    with built() as env:
        env.reset(0)
        simulator = Simulator(env, play)
        assert env.step(actions(env)).groups["b"].acting.all()
        env.step(actions(env))
        simulator.join()


@pytest.mark.parametrize(
    ("header", "body", "message"),
    [
        (b"{", b"", "the header is not JSON"),
        (b"[" * 100_000, b"", "the header is not JSON"),
        (b"[]", b"", "the header has no op"),
        (b'{"op": "x"}', b"abc", "3 bytes belong to no array"),
        (b'{"op": "x", "arrays": [["o", "a", "float32", [2]]]}', b"abcd", "is incomplete"),
        (b'{"op": "x", "arrays": [["o", "a", "object", [2]]]}', b"", "an array must be described as"),
        (b'{"op": "x", "arrays": [["o", "a", "float32", [-1]]]}', b"", "an array must be described as"),
        (b'{"op": "x", "arrays": 3}', b"", "an array must be described as"),
    ],
)
def test_bytes_that_are_no_message(header: bytes, body: bytes, message: str) -> None:
    inbox = Inbox()
    inbox.add(HEADER.pack(MAGIC, len(header), len(body)) + header + body)
    with pytest.raises(WireError, match=message):
        inbox.take()


def test_a_message_arrives_in_any_pieces() -> None:
    sent = Message({"op": "act", "x": 1}, {("observation", "a"): np.arange(6).reshape(2, 3), ("o", "b"): np.float32(2)})
    data, inbox, messages = sent.pack() * 2, Inbox(), []
    for k in range(0, len(data), 7):
        inbox.add(data[k : k + 7])
        while (message := inbox.take()) is not None:
            messages.append(message)
    for message in messages:
        assert message.header == {"op": "act", "x": 1}
        assert message.arrays["observation", "a"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert message.arrays["o", "b"].shape == () and float(message.arrays["o", "b"]) == 2
    assert len(messages) == 2


def test_it_leaves_nothing_behind(tmp_path: Path) -> None:
    env = built(address_file=str(tmp_path / "deep" / "server.json"))
    env.publish(tmp_path)
    file = tmp_path / "server.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["address"] == env.address
    env.reset(0)
    with pytest.raises(EnvError, match=r"actions of group 'a' must be int64 of shape \[1, 2\]; got torch.float32"):
        env.step({"a": torch.zeros(3), "b": torch.zeros(1, 1, 1)})
    gone = threading.Event()

    def play(client: Client) -> None:
        with pytest.raises(ServerGone, match="is gone"):
            client.begin_episode().act({"boss": [1.0]})
        gone.set()

    simulator = Simulator(env, play)
    env.step(actions(env))
    env.close()
    env.close()
    simulator.join()
    assert gone.is_set() and not list(tmp_path.iterdir())
    with pytest.raises(ConnectionRefused, match=r"no server at .* after 0.2 s"):
        Client.connect(tmp_path, timeout_s=0.2)
    with pytest.raises(EnvError, match="closed"):
        env.step(actions(env))


def test_a_run_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConnectionRefused, match=re.escape(str(tmp_path / "mine" / "server.json"))):
        Client.connect("~/mine", timeout_s=0.1)


def test_a_server_that_does_not_answer_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectionRefused, match=f"^{address}: it accepts connections and does not answer in time$"):
            Client.connect(address, "token", timeout_s=0.2)


@pytest.mark.parametrize("address", ["localhost:99999", "localhost:0"])
def test_a_port_that_cannot_exist_is_refused_at_once(address: str) -> None:
    with pytest.raises(ConnectionRefused, match=f"^{address}: valid ports are 1 to 65535$"):
        Client.connect(address, timeout_s=GUARD_S)


def test_an_interrupted_request_gets_no_answer_later() -> None:
    interrupted, steps = threading.Event(), []

    def serve() -> None:
        env.step(actions(env))
        env.step(actions(env))
        interrupted.wait(GUARD_S)
        steps.append(env.step(actions(env)))

    with built() as env:
        env.reset(0)
        server = threading.Thread(target=serve, daemon=True)
        server.start()
        client = Client.connect(env.address, env.token, timeout_s=GUARD_S)
        episode = client.begin_episode()
        assert episode.act({"boss": [1.0]}) == {"boss": np.float32([0.5])}
        main_thread = threading.main_thread().ident
        threading.Timer(0.2, signal.pthread_kill, (main_thread, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            episode.act({"boss": [2.0]})
        interrupted.set()
        for request in (lambda: episode.act({"boss": [3.0]}), client.begin_episode):
            with pytest.raises(ServerGone, match=r"is closed: a request was interrupted.*; connect again"):
                request()
        server.join(GUARD_S)
        boss = steps[0].groups["b"]
        assert boss.truncated.all() and boss.final_observation.tolist() == [[[2]]]


def test_a_failed_build_frees_its_address(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    address = f"unix:{tmp_path / 's'}"
    with pytest.raises(EnvError, match="cannot write the server's address"):
        built(address=address, address_file=str(tmp_path / "file" / "server.json"))
    built(address=address).close()


def test_an_evaluation_at_a_free_port_of_the_same_host() -> None:
    for address, expected in (("127.0.0.1:45999", "127.0.0.1:0"), ("[::1]:45999", "[::1]:0")):
        config = evaluation_config(ExternalConfig(groups=GROUPS, address=address))
        assert config == ExternalConfig(groups=GROUPS, address=expected)


def test_servers_at_once_have_addresses_and_files_of_their_own(tmp_path: Path) -> None:
    fixed = ExternalConfig(groups=GROUPS, address=f"unix:{tmp_path / 's'}", address_file=str(tmp_path / "where.json"))
    first, second = evaluation_config(fixed).build(1), evaluation_config(fixed).build(1)
    for env in (first, second):
        publish_evaluation(env, tmp_path / "evaluation")
    published = ["where.evaluation", "evaluation/server"], ["where.evaluation-2", "evaluation-2/server"]
    for names, ending in zip(published, ("evaluation", "evaluation-2")):
        for name in names:
            content = json.loads((tmp_path / f"{name}.json").read_text())
            assert content["address"] == f"unix:{tmp_path / 's'}.{ending}"
    first.close()
    third = evaluation_config(fixed).build(1)  # the first place is free again
    publish_evaluation(third, tmp_path / "evaluation")
    assert (tmp_path / "evaluation" / "server.json").exists() and third.address == first.address
    second.close()
    third.close()
    assert not list(tmp_path.iterdir())


def test_a_unix_address_leaves_room_for_that_of_evaluations(tmp_path: Path) -> None:
    longest = f"{tmp_path}/{'s' * 100}"[:89]
    envs = []
    for _ in range(3):
        envs.append(evaluation_config(ExternalConfig(groups=GROUPS, address=f"unix:{longest}")).build(1))
    for env in envs:
        env.close()
    with pytest.raises(ConfigError, match=r"address has a path of 90 bytes; at most 89, .* as \.evaluation-2"):
        ExternalConfig(groups=GROUPS, address=f"unix:{longest}s")


def test_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    for _ in range(2):  # the second finds no trace of the first
        with built(address=f"unix:{path}") as env:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(EnvError, match="another process already listens there"):
                built(address=f"unix:{path}")
            env.reset(0)
            simulator = Simulator(env, lambda client: client.begin_episode().act({"boss": [1.0]}))
            env.step(actions(env))
            env.step(actions(env))
            simulator.join()
        assert not path.exists()


def test_no_simulator_connects(capsys: pytest.CaptureFixture[str]) -> None:
    with built(timeout_s=0.2) as env:
        env.reset(0)
        with pytest.raises(
            EnvError, match=r"no simulator asked for an action at 127.0.0.1:\d+ in 0.2 s \(0 are connected"
        ):
            env.step(actions(env))


def test_interrupted_it_does_not_wait() -> None:
    with built(timeout_s=0.0) as env:
        env.reset(0)
        threading.Timer(0.1, env.interrupt).start()
        step = env.step(actions(env))
        assert not any(group.acting.any() for group in step.groups.values())
        assert not env.step(actions(env)).done.any()
        env.reset(1)
        start = time.monotonic()
        threading.Timer(0.1, env.interrupt).start()
        env.step(actions(env))
        assert time.monotonic() - start >= 0.1  # it waits again


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], r"external/server needs groups, for example groups.player.observation"),
        (["env.groups.a.actions=3"], r"env.groups.a.observation has no default and must be given"),
        (["env.groups.a.observation=[2]"], r"group 'a' needs either actions, or low and high"),
        (["env.groups.a.observation=[2]", "env.groups.a.actons=3"], r"did you mean 'env.groups.a.actions'"),
        (["env.groups.a.observation=[0]", "env.groups.a.actions=3"], r"observation\[0\] must be at least 1"),
        (["env.groups.a.observation=[2]", "env.groups.a.low=[0]", "env.groups.a.high=[0]"], r"low < high"),
        (
            ["env.groups.a.observation=[2]", "env.groups.a.actions=3", "env.address=0.0.0.0:0"],
            r"can be reached from other machines, and the traffic is not encrypted; .* allow_remote=true",
        ),
        *[
            (
                ["env.groups.a.observation=[2]", "env.groups.a.actions=3", f"env.address={at}"],
                r"must be host:port or unix:",
            )
            for at in ("here", "localhost:65536", f"localhost:{'9' * 5000}")
        ],
    ],
)
def test_invalid_groups(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.compose("env=external/server", *overrides)


def test_groups_from_a_file_and_there_and_back(tmp_path: Path) -> None:
    groups = {
        "a": {"agents": 2, "observation": [2], "actions": 3, "action_mask": True},
        "b": {"agents": ["boss"], "observation": [1], "low": [-1], "high": [2]},
    }
    file = tmp_path / "groups.json"
    file.write_text(json.dumps(groups))
    experiment = Experiment.compose("env=external/server", f"env.groups_file={file}")
    assert Experiment.from_json(json.loads(json.dumps(experiment.to_json()))) == experiment
    with experiment.env.build(1) as env, built() as other:
        assert env.spec == other.spec
    direct: EnvConfig = ExternalConfig(groups=GROUPS)
    again = Experiment.from_json({**experiment.to_json(), "env": json.loads(json.dumps(_env_json(direct)))})
    assert again.env == direct
    file.write_text(json.dumps({"a": {"observation": [2], "actoins": 3}}))
    with pytest.raises(ConfigError, match=r"groups.json: a.actoins'; did you mean"):
        experiment.env.build(1)


def test_files_mean_the_same_in_every_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run keeps the groups, whatever becomes of their file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    groups, where = tmp_path / "groups.json", tmp_path / "where.json"
    (tmp_path / "elsewhere").mkdir()
    for folder in ("", "~/"):
        monkeypatch.chdir(tmp_path)
        groups.write_text(json.dumps({"p": {"observation": [2], "actions": 3}}))
        config = ExternalConfig(groups_file=f"{folder}groups.json", address_file=f"{folder}where.json")
        experiment = Experiment(config, IPPOConfig(), MLPConfig())
        run = RunFolder.create(f"run{len(folder)}", experiment)
        check_same(run, experiment)
        env = config.build(1)
        assert where.is_file()
        monkeypatch.chdir(tmp_path / "elsewhere")
        env.close()
        assert not where.exists()
        groups.write_text(json.dumps({"q": {"observation": [2], "actions": 3}}))
        kept = from_json(json.loads((run.path / "experiment.json").read_text())["env"], EnvConfig, "env")
        assert kept == ExternalConfig(groups={"p": ExternalGroup(observation=(2,), actions=3)}, address_file=str(where))
    with pytest.raises(RunError, match=r"another experiment; env.groups.p.*env.groups.q"):
        check_same(run, experiment)


def _env_json(config: EnvConfig) -> dict[str, object]:
    from marlnb.codec import to_json

    data = to_json(config)
    assert isinstance(data, dict)
    return data
