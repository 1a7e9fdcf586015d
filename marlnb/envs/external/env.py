"""The VectorEnv that simulators in other processes play in: each of its envs is a slot for one simulator's episode."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from marlnb.client.messages import PROTOCOL, TOKEN_VARIABLE, InvalidReport, Message
from marlnb.display.notice import print_notice
from marlnb.envs.external.address_file import AddressFile
from marlnb.envs.external.episode_slot import EpisodeSlot, agents_of, check_report
from marlnb.envs.external.interface import EnvInterrupted, ServedEnv
from marlnb.envs.external.options import ExternalOptions, max_request_bytes
from marlnb.envs.external.server import MAX_INVALID, Connection, Server
from marlnb.envs.steps import copy_step, tensors
from marlnb.envs.vector import Step, allocate_step, check_n_envs
from marlnb.errors import EnvError
from marlnb.specs import SEED_SPAN

POLL_S = 0.5
NOTE_AFTER_S = 3.0


class ExternalEnv(ServedEnv):
    """B slots. A new episode starts in the free slot that has had the fewest, and its agents act when they ask.

    `step` sends the actions that simulators asked for. It then waits until each simulator that got actions asks again
    or disconnects. If one takes longer than `deadline_s`, `step` returns, and later steps do not wait for it until it
    asks. In a slot without a simulator, all agents are alive and none acts. If no simulator asks at all, `step` waits
    until one does, until `timeout_s`, or until `interrupt` is called; then no step waits before the next `reset`.

    Saving does not disturb episodes. After a restore, every simulator counts as disconnected: the episodes that were in
    progress are cut off at their last observations in the first step, except those in which no agent has acted, which
    are not counted.

    Attributes:
        address: where simulators connect.
        token: what simulators must present.
    """

    def __init__(self, config: ExternalOptions, n_envs: int, device: str = "cpu") -> None:
        check_n_envs(config.name, n_envs)
        self.spec, self.n_envs, self.device = config.spec(), n_envs, torch.device(device)
        self._config, self._agents = config, agents_of(self.spec)
        self._cpu_step = allocate_step(self.spec, n_envs, "cpu")
        self._step = self._cpu_step if self.device.type == "cpu" else allocate_step(self.spec, n_envs, self.device)
        self._slots = [EpisodeSlot(env_index, self.spec, self._cpu_step) for env_index in range(n_envs)]
        self._playing: dict[Connection, EpisodeSlot] = {}
        self._queue: list[Connection] = []  # wait for a free slot
        self._interrupted = self._cancelled = False
        self._awaited: set[Connection] = set()  # got an answer, and are expected to ask again
        self._abandoned: set[Connection] = set()  # play an episode that a reset has ended here
        self._cut_off: list[EpisodeSlot] = []  # restored in the middle of an episode
        self._seed: int | None = None
        self._files: list[AddressFile] = []
        self.token = os.environ.get(TOKEN_VARIABLE) or secrets.token_hex(16)
        welcome = {
            "protocol": PROTOCOL,
            "agents": {name: {k: v for k, v in vars(a).items() if k != "name"} for name, a in self._agents.items()},
        }
        self._server: Server | None = Server(config.address, self.token, welcome, max_request_bytes(self.spec))
        self.address = self._server.address
        self._connect_to = self.address
        if config.address_path is not None:
            try:
                self._files.append(AddressFile(config.address_path, self.address, self.token))
            except BaseException:
                self.close()
                raise

    def publish(self, folder: Path) -> None:
        self._files.append(AddressFile(folder / AddressFile.NAME, self.address, self.token))
        self._connect_to = str(folder)

    def interrupt(self) -> None:
        self._interrupted = True

    def cancel(self) -> None:
        self._cancelled = True

    def reset(self, seed: int) -> Step:
        """Starts every slot again. Simulators in the middle of an episode get the message that it is over."""
        for connection, slot in self._playing.items():
            if slot.requested:
                self._reply_over(connection, "the environment was reset")
            else:  # told when it asks
                self._abandoned.add(connection)
        self._playing, self._cut_off = {}, []
        self._awaited.clear()
        self._interrupted = False
        self._seed = int(seed) % SEED_SPAN
        for tensor in tensors(self._cpu_step):
            tensor.zero_()
        for slot in self._slots:
            slot.episode = 0
            slot.clear()
        return self._on_device()

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        """Sends actions and waits for the simulators that got them; see the class.

        Raises:
            EnvError: before the first `reset` or after `close`; actions of another shape or dtype; no simulator asked
                for `timeout_s`.
            EnvInterrupted: after `cancel`.
        """
        if self._seed is None:
            raise EnvError(f"{self.spec.name}: reset before the first step")
        self._cpu_step.clear_transition()
        for group in self._cpu_step.groups.values():
            group.acting.zero_()
        for slot in self._slots:
            slot.add_early_rewards()
        for slot in self._cut_off:
            slot.finish(truncated=True)
        self._cut_off = []
        self._send(actions)
        self._wait()
        return self._on_device()

    def state_dict(self) -> dict[str, Tensor] | None:
        if self._seed is None:
            return None
        groups = self._cpu_step.groups.items()
        return {
            "seed": torch.tensor(self._seed),
            "number": torch.tensor([slot.episode for slot in self._slots]),
            "has_acted": torch.tensor([slot.has_acted for slot in self._slots]),
            **{f"{name}/observation": group.observation.clone() for name, group in groups},
            **{f"{name}/alive": group.alive.clone() for name, group in groups},
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        self.reset(int(state["seed"]))
        has_acted = state["has_acted"]
        for slot, episode, acted in zip(self._slots, state["number"].tolist(), has_acted.tolist()):
            slot.episode, slot.has_acted = episode, acted
        for name, group in self._cpu_step.groups.items():
            group.observation[has_acted] = state[f"{name}/observation"][has_acted]
            group.alive[has_acted] = state[f"{name}/alive"][has_acted]
        self._cut_off = [slot for slot in self._slots if slot.has_acted]
        return self._on_device()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            for file in self._files:
                file.remove()

    def _send(self, actions: Mapping[str, Tensor]) -> None:
        arrays = {name: self._check_actions(name, actions) for name in self.spec.group_names}
        for connection, slot in self._playing.items():
            if slot.requested:
                replies = {("action", name): arrays[group][slot.env_index, i] for name, group, i in slot.requested}
                slot.has_acted, slot.requested = True, []
                connection.reply("actions", replies)
                self._awaited.add(connection)

    def _check_actions(self, name: str, actions: Mapping[str, Tensor]) -> np.ndarray:
        """One group's actions as an array, clipped to their bounds."""
        group = self.spec.group(name)
        shape = (self.n_envs, group.n_agents, *group.action.shape)
        action = actions.get(name)
        if action is None or tuple(action.shape) != shape or action.dtype != getattr(torch, group.action.dtype):
            got = "none" if action is None else f"{action.dtype} of shape {list(action.shape)}"
            raise EnvError(
                f"{self.spec.name}: actions of group {name!r} must be {group.action.dtype} of shape {list(shape)}; "
                f"got {got}"
            )
        array = action.detach().cpu().numpy()
        if group.action.kind == "continuous":
            low, high = np.array(group.action.low, np.float32), np.array(group.action.high, np.float32)
            array = np.minimum(np.maximum(array, low), high)
        return array

    def _wait(self) -> None:
        start, timeout, noted = time.monotonic(), self._config.timeout_s, False
        poll_s = 0.0
        while True:
            if self._cancelled:
                raise EnvInterrupted(f"{self.spec.name}: the training was asked to stop")
            for connection, message in self._open_server().poll(poll_s):
                self._receive(connection, message)
            waited = time.monotonic() - start
            has_news = bool(self._cpu_step.done.any()) or any(slot.requested for slot in self._slots)
            if self._interrupted or (has_news and (not self._awaited or waited >= self._config.deadline_s)):
                break
            if not has_news and timeout and waited >= timeout:
                if self._replace_silent():
                    start = time.monotonic()
                    continue
                raise EnvError(
                    f"{self.spec.name}: no simulator asked for an action at {self.address} in {timeout:g} s "
                    f"({self._open_server().n_known} are connected). Start a simulator that calls "
                    f"Client.connect({self._connect_to!r}); env.timeout_s sets how long to wait, 0: without limit"
                )
            if not noted and not self._playing and waited > NOTE_AFTER_S:
                print_notice(f"waiting for simulators at {self.address}: Client.connect({self._connect_to!r})")
                noted = True
            poll_s = min(POLL_S, max(0.0, self._config.deadline_s - waited)) if has_news else POLL_S
        self._awaited.clear()

    def _replace_silent(self) -> bool:
        """Disconnects the simulators that no longer ask, if others wait for their places; returns whether it did."""
        if self._queue:
            for connection in self._playing:
                connection.refuse(f"no request for {self._config.timeout_s:g} s, while other simulators wait")
        return bool(self._queue)

    def _receive(self, connection: Connection, message: Message | None) -> None:
        """Handles a message; None: the simulator has disconnected."""
        self._awaited.discard(connection)
        if message is None:
            self._disconnect(connection)
            return
        try:
            self._handle(connection, message)
        except InvalidReport as error:  # the others do not wait until it sends a valid message
            connection.n_invalid += 1
            if connection.n_invalid < MAX_INVALID:
                connection.reply("error", message=str(error))
            else:
                connection.refuse(f"{error}; disconnected after {MAX_INVALID} invalid messages in a row")
        else:
            connection.n_invalid = 0

    def _handle(self, connection: Connection, message: Message) -> None:
        slot = self._playing.get(connection)
        if slot is not None and slot.requested:
            raise InvalidReport(f"{message.op!r} before the actions of the last request were sent; wait for the answer")
        if message.op == "begin" and slot is None and connection not in self._queue:
            self._abandoned.discard(connection)
            self._queue.append(connection)
            self._start_queued()
        elif message.op == "act" and slot is not None:
            self._handle_act(connection, slot, message)
        elif message.op == "end" and slot is not None:
            report = check_report(message, self._agents, slot, needs_observations=False)
            slot.apply(report)
            slot.finish(truncated=report.truncated, last=report.final, masks=report.final_mask)
            del self._playing[connection]
            connection.reply("ended")
            self._awaited.add(connection)
            self._start_queued()
        elif message.op in ("act", "end") and connection in self._abandoned:
            self._abandoned.discard(connection)
            self._reply_over(connection, "the environment was reset")
        else:
            raise InvalidReport(f"{message.op!r} {'within' if slot else 'outside'} an episode; valid: begin, act, end")

    def _handle_act(self, connection: Connection, slot: EpisodeSlot, message: Message) -> None:
        report = check_report(message, self._agents, slot, needs_observations=True)
        slot.apply(report)
        if self._config.max_steps is not None and slot.n_requests >= self._config.max_steps:
            masks = {name: report.mask.get(name, True) for name in report.observation}
            slot.finish(
                truncated=True, last={**report.final, **report.observation}, masks={**report.final_mask, **masks}
            )
            del self._playing[connection]
            self._reply_over(connection, f"after {self._config.max_steps} requests, as max_steps says")
            self._start_queued()
        else:
            slot.request_actions(report)

    def _reply_over(self, connection: Connection, reason: str) -> None:
        connection.reply("over", message=reason)
        self._awaited.add(connection)

    def _disconnect(self, connection: Connection) -> None:
        """A simulator is gone: its episode is cut off at the last observations, and its slot is free."""
        self._abandoned.discard(connection)
        if connection in self._queue:
            self._queue.remove(connection)
        slot = self._playing.pop(connection, None)
        if slot is not None:
            slot.finish(truncated=True)
            self._start_queued()

    def _start_queued(self) -> None:
        """Starts episodes of waiting simulators in the free slots, those with the fewest episodes first."""
        taken = {slot.env_index for slot in self._playing.values()}
        free = [slot for slot in self._slots if slot.env_index not in taken]
        while self._queue and free:
            slot = min(free, key=lambda slot: (slot.episode, slot.env_index))
            free.remove(slot)
            connection = self._queue.pop(0)
            self._playing[connection] = slot
            connection.reply("started", seed=self._episode_seed(slot))
            self._awaited.add(connection)

    def _episode_seed(self, slot: EpisodeSlot) -> int:
        assert self._seed is not None
        return (self._seed + slot.episode * self.n_envs + slot.env_index) % SEED_SPAN

    def _on_device(self) -> Step:
        for slot in self._slots:
            self._cpu_step.episode_seed[slot.env_index] = self._episode_seed(slot)
        if self._step is not self._cpu_step:
            copy_step(self._cpu_step, self._step)
        return self._step

    def _open_server(self) -> Server:
        if self._server is None:
            raise EnvError(f"{self.spec.name} is closed")
        return self._server
