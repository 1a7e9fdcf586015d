"""The VectorEnv whose copies are places for simulators' episodes: filled as simulators come, vacant when they go."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from marlnb.client import PROTOCOL, TOKEN_VARIABLE, InvalidReport, Message
from marlnb.envs.external.address_file import AddressFile
from marlnb.envs.external.config import ExternalConfig, request_bytes
from marlnb.envs.external.place import Place, agents_of, checked
from marlnb.envs.external.server import Connection, Server
from marlnb.envs.steps import tensors
from marlnb.envs.vector import SEED_SPAN, Step, VectorEnv, allocate_step
from marlnb.errors import EnvBuildError, EnvError

POLL_S = 0.5
NOTE_AFTER_S = 3.0


class ExternalEnv(VectorEnv):
    """B places. An episode begins in the place that has had the fewest, and its agents act when their simulator asks.

    `step` hands out the actions asked for and waits until each simulator that got some has asked again or has gone;
    for one that takes longer than `deadline_s` the others wait once, then no more until it asks. Where no simulator
    is, all agents are alive and none acts. When nobody asks at all, `step` waits, until `hurry` is called.

    Saving and restoring: a checkpoint disturbs no episode. Restored, it goes on as if every simulator had died: the
    episodes that were under way are cut off at their last observations in the first step.

    Attributes:
        address, token: where simulators connect, and what they show.
    """

    def __init__(self, config: ExternalConfig, n_envs: int, device: str = "cpu") -> None:
        if n_envs < 1:
            raise EnvBuildError(f"{config.name}: at least one copy is needed; got n_envs={n_envs}")
        self.spec, self.n_envs, self.device = config.spec(), n_envs, torch.device(device)
        self._config, self._agents = config, agents_of(self.spec)
        self._told = allocate_step(self.spec, n_envs, "cpu")
        self._step = self._told if self.device.type == "cpu" else allocate_step(self.spec, n_envs, self.device)
        self._places = [Place(index, self.spec, self._told) for index in range(n_envs)]
        self._seats: dict[Connection, Place] = {}
        self._queue: list[Connection] = []  # want a place
        self._hurried = False
        self._awaited: set[Connection] = set()  # have been answered, and are expected to ask again
        self._abandoned: set[Connection] = set()  # play an episode that counts no more
        self._cut_off: list[Place] = []
        self._seed: int | None = None
        self._files: list[AddressFile] = []
        self.token = os.environ.get(TOKEN_VARIABLE) or secrets.token_hex(16)
        welcome = {
            "protocol": PROTOCOL,
            "agents": {name: {k: v for k, v in vars(a).items() if k != "name"} for name, a in self._agents.items()},
        }
        self._server: Server | None = Server(config.address, self.token, welcome, request_bytes(self.spec))
        self.address = self._server.address
        if config.address_file:
            self._files.append(AddressFile(Path(config.address_file), self.address, self.token))

    def announce(self, folder: Path) -> None:
        self._files.append(AddressFile(folder / AddressFile.NAME, self.address, self.token))

    def hurry(self) -> None:
        self._hurried = True

    def reset(self, seed: int) -> Step:
        """Starts every place anew; simulators in the middle of an episode are told that it is over."""
        self._unseat()
        self._seed = int(seed) % SEED_SPAN
        for tensor in tensors(self._told):
            tensor.zero_()
        for place in self._places:
            place.number = 0
            place.vacate()
        return self._handed_over()

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        """Hands out actions and waits for those who got them; see the class.

        Raises:
            EnvError: before the first `reset` or after `close`; actions of another shape; nobody asked for
                `timeout_s`.
        """
        if self._seed is None:
            raise EnvError(f"{self.spec.name}: reset before the first step")
        self._clear()
        for place in self._cut_off:
            place.finish(truncated=True)
        self._cut_off = []
        self._hand_out(actions)
        self._wait()
        return self._handed_over()

    def state_dict(self) -> dict[str, Tensor] | None:
        if self._seed is None:
            return None
        groups = self._told.groups.items()
        return {
            "seed": torch.tensor(self._seed),
            "number": torch.tensor([place.number for place in self._places]),
            "shown": torch.tensor([place.is_shown or bool(place.asked) for place in self._places]),
            **{f"{name}/observation": group.observation.clone() for name, group in groups},
            **{f"{name}/alive": group.alive.clone() for name, group in groups},
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        self.reset(int(state["seed"]))
        for place, number, shown in zip(self._places, state["number"].tolist(), state["shown"].tolist()):
            place.number, place.is_shown = number, shown
        for name, group in self._told.groups.items():
            group.observation.copy_(state[f"{name}/observation"])
            group.alive.copy_(state[f"{name}/alive"])
        self._cut_off = [place for place in self._places if place.is_shown]
        return self._handed_over()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            for file in self._files:
                file.remove()

    def _clear(self) -> None:
        """What was told of the last step is told no more; what came too early for it is told now."""
        for group in self._told.groups.values():
            for tensor in (group.reward, group.terminated, group.truncated, group.acting):
                tensor.zero_()
        self._told.done.zero_()
        for place in self._places:
            place.take_early()

    def _hand_out(self, actions: Mapping[str, Tensor]) -> None:
        chosen = {name: self._array(name, actions) for name in self.spec.group_names}
        for connection, place in self._seats.items():
            if place.asked:
                replies = {("action", name): chosen[group][place.index, i] for name, group, i in place.asked}
                place.is_shown, place.asked = True, []
                connection.reply("actions", replies)
                self._awaited.add(connection)

    def _array(self, name: str, actions: Mapping[str, Tensor]) -> np.ndarray:
        group = self.spec.group(name)
        shape = (self.n_envs, group.n_agents, *group.action.shape)
        given = actions.get(name)
        if given is None or tuple(given.shape) != shape or given.dtype != getattr(torch, group.action.dtype):
            found = "none" if given is None else f"{given.dtype} of shape {list(given.shape)}"
            raise EnvError(
                f"{self.spec.name}: actions of group {name!r} must be {group.action.dtype} of shape {list(shape)}; "
                f"got {found}"
            )
        array = given.detach().cpu().numpy()
        if group.action.kind == "continuous":
            low, high = np.array(group.action.low, np.float32), np.array(group.action.high, np.float32)
            array = np.minimum(np.maximum(array, low), high)
        return array

    def _wait(self) -> None:
        began, timeout, noted = time.monotonic(), self._config.timeout_s, False
        patience = 0.0
        while True:
            for connection, message in self._open_server().poll(patience):
                self._take(connection, message)
            waited = time.monotonic() - began
            somebody = bool(self._told.done.any()) or any(place.asked for place in self._places)
            if self._hurried or (somebody and (not self._awaited or waited >= self._config.deadline_s)):
                break
            if not somebody and timeout and waited >= timeout:
                raise EnvError(
                    f"{self.spec.name}: no simulator asked for an action at {self.address} in {timeout:g} s "
                    f"({self._open_server().n_known} are connected). Start one with "
                    "Client.connect(FOLDER), the run's folder, while it waits; env.timeout_s says how long, 0: for ever"
                )
            if not noted and not self._seats and waited > NOTE_AFTER_S:
                print(f"marlnb: waiting for simulators at {self.address}", file=sys.stderr, flush=True)
                noted = True
            patience = min(POLL_S, max(0.0, self._config.deadline_s - waited)) if somebody else POLL_S
        self._awaited.clear()

    def _take(self, connection: Connection, message: Message | None) -> None:
        self._awaited.discard(connection)
        if message is None:
            self._leave(connection)
            return
        try:
            self._answer(connection, message)
        except InvalidReport as error:
            connection.reply("error", message=str(error))
            self._awaited.add(connection)

    def _answer(self, connection: Connection, message: Message) -> None:
        place = self._seats.get(connection)
        if message.op == "begin" and place is None and connection not in self._queue:
            self._abandoned.discard(connection)
            self._queue.append(connection)
            self._seat_those_who_wait()
        elif message.op in ("act", "end") and place is not None:
            (self._act if message.op == "act" else self._end)(connection, place, message)
        elif message.op in ("act", "end") and connection in self._abandoned:
            self._abandoned.discard(connection)
            self._tell_over(connection, "the environment was reset")
        else:
            raise InvalidReport(f"{message.op!r} {'within' if place else 'outside'} an episode; valid: begin, act, end")

    def _act(self, connection: Connection, place: Place, message: Message) -> None:
        report = checked(message, self._agents, place, needs_observations=True)
        place.report(report)
        if self._config.max_steps is not None and place.requests >= self._config.max_steps:
            place.finish(truncated=True, last={**report.final, **report.observation})
            del self._seats[connection]
            self._tell_over(connection, f"after {self._config.max_steps} requests, as max_steps says")
            self._seat_those_who_wait()
        else:
            place.ask(report)

    def _end(self, connection: Connection, place: Place, message: Message) -> None:
        report = checked(message, self._agents, place, needs_observations=False)
        place.report(report)
        place.finish(truncated=report.truncated, last=report.final)
        del self._seats[connection]
        connection.reply("ended")
        self._awaited.add(connection)
        self._seat_those_who_wait()

    def _tell_over(self, connection: Connection, why: str) -> None:
        connection.reply("over", message=why)
        self._awaited.add(connection)

    def _leave(self, connection: Connection) -> None:
        """A simulator has gone: its episode is cut off at what was seen last, and its place is free."""
        self._abandoned.discard(connection)
        if connection in self._queue:
            self._queue.remove(connection)
        place = self._seats.pop(connection, None)
        if place is not None:
            place.finish(truncated=True)
            self._seat_those_who_wait()

    def _seat_those_who_wait(self) -> None:
        taken = {place.index for place in self._seats.values()}
        vacant = [place for place in self._places if place.index not in taken]
        while self._queue and vacant:
            place = min(vacant, key=lambda place: (place.number, place.index))
            vacant.remove(place)
            connection = self._queue.pop(0)
            self._seats[connection] = place
            connection.reply("begun", seed=self._episode_seed(place))
            self._awaited.add(connection)

    def _unseat(self) -> None:
        for connection, place in self._seats.items():
            if place.asked:
                self._tell_over(connection, "the environment was reset")
            else:
                self._abandoned.add(connection)
        self._seats, self._cut_off = {}, []
        self._awaited.clear()

    def _episode_seed(self, place: Place) -> int:
        assert self._seed is not None
        return (self._seed + place.number * self.n_envs + place.index) % SEED_SPAN

    def _handed_over(self) -> Step:
        for place in self._places:
            self._told.episode_seed[place.index] = self._episode_seed(place)
        if self._step is not self._told:
            for source, target in zip(tensors(self._told), tensors(self._step)):
                target.copy_(source)
        return self._step

    def _open_server(self) -> Server:
        if self._server is None:
            raise EnvError(f"{self.spec.name} is closed")
        return self._server
