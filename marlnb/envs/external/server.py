"""The listening end: connections that have presented the token, and their messages, read whenever it is polled.

There is no thread: messages of simulators wait in their sockets until the environment is stepped.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import selectors
import socket
import stat
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from marlnb.client.messages import PROTOCOL, Inbox, Message, WireError
from marlnb.envs.external.addresses import UNIX, is_listening
from marlnb.errors import EnvBuildError

GREETING_BYTES = 4096  # maximal size of the first message of an unknown connection
GREETING_S = 10.0  # maximal time until that message arrives
SEND_TIMEOUT_S = 5.0  # a connection that does not take a reply in this time is closed
RECEIVE_BYTES = 1 << 18  # read at once
MAX_DISCARDED = 1 << 22  # bytes that have arrived from a connection that is closed
MAX_SIMULATORS = 512
MAX_UNKNOWN = 128  # connections that have not presented the token; for one more, the oldest is closed
MAX_ACCEPTED = MAX_UNKNOWN // 2  # at each poll, so that a new connection is read before it can be the oldest
MAX_INVALID = 100  # invalid messages in a row, after which a simulator is disconnected


class Connection:
    """One simulator, or a connection that has not presented the token yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.inbox = Inbox(GREETING_BYTES, 0)
        self.is_known = False
        self.n_invalid = 0  # messages in a row
        self.opened_at = time.monotonic()
        self.is_open = True
        sock.settimeout(SEND_TIMEOUT_S)

    def reply(self, op: str, arrays: dict[tuple[str, str], np.ndarray] | None = None, **facts: Any) -> None:
        """Sends a message. If that fails, the connection is closed, and the next poll reports it."""
        try:
            self.sock.sendall(Message({"op": op, **facts}, arrays or {}).pack())
        except OSError:
            self.is_open = False

    def refuse(self, reason: str) -> None:
        """Sends the reason; the next poll closes the connection and reports it."""
        self.reply("error", message=reason)
        self.is_open = False

    def close(self) -> None:
        """Reads what has arrived before closing: a system that has unread bytes resets the connection instead, and the
        other side may lose the last reply."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
            self.sock.setblocking(False)
            for _ in range(MAX_DISCARDED // RECEIVE_BYTES):
                self.sock.recv(RECEIVE_BYTES)
        self.sock.close()


class Server:
    """Listens at `address` for simulators that present `token`.

    Args:
        welcome: the description of the agents that simulators receive, plain JSON.
        max_body: the largest number of array bytes in a message.
    Attributes:
        address: where it listens, with the real port.
    Raises:
        EnvBuildError: the address is in use, or cannot be listened at.
    """

    def __init__(self, address: str, token: str, welcome: dict[str, Any], max_body: int) -> None:
        self._token, self._welcome, self._max_body = token.encode(), welcome, max_body
        self._selector = selectors.DefaultSelector()
        self._connections: dict[Connection, None] = {}  # in the order in which they were opened
        self._unix_path = address[len(UNIX) :] if address.startswith(UNIX) else None
        try:
            self._socket, self.address = _listen(address)
        except OSError as error:
            self._selector.close()
            raise EnvBuildError(f"cannot listen at {address}: {error}") from error
        self._socket.setblocking(False)
        self._selector.register(self._socket, selectors.EVENT_READ, None)

    def poll(self, timeout_s: float) -> Iterator[tuple[Connection, Message | None]]:
        """Messages of known simulators, after waiting for some at most `timeout_s`; None: that one disconnected."""
        ready = [key.data for key, _ in self._selector.select(timeout_s)]
        for connection in ready:
            if connection is not None:
                yield from self._read(connection)
        if None in ready:
            self._accept()  # after reading: a simulator that has presented the token by now is known
        now = time.monotonic()
        for connection in self._unknown():
            if now - connection.opened_at > GREETING_S:
                connection.refuse(f"no hello with the token within {GREETING_S:g} s")
        for connection in [c for c in self._connections if not c.is_open]:
            yield from self._lose(connection)

    @property
    def n_known(self) -> int:
        """Connected simulators that have presented the token."""
        return sum(connection.is_known for connection in self._connections)

    def close(self) -> None:
        for connection in list(self._connections):
            self._close(connection)
        self._selector.close()
        self._socket.close()
        if self._unix_path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._unix_path)

    def _unknown(self) -> list[Connection]:
        """Open connections that have not presented the token, oldest first."""
        return [connection for connection in self._connections if connection.is_open and not connection.is_known]

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTED):
            try:
                sock, _ = self._socket.accept()
            except OSError:  # no connection is waiting any more
                return
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock)
            self._connections[connection] = None
            self._selector.register(sock, selectors.EVENT_READ, connection)
            unknown = self._unknown()
            if self.n_known >= MAX_SIMULATORS:
                connection.refuse(f"{MAX_SIMULATORS} simulators are connected already")
            elif len(unknown) > MAX_UNKNOWN:
                unknown[0].refuse("too many connections without a token; connect again")

    def _read(self, connection: Connection) -> Iterator[tuple[Connection, Message | None]]:
        try:
            data = connection.sock.recv(RECEIVE_BYTES)
        except OSError:
            data = b""
        if not data:
            yield from self._lose(connection)
            return
        connection.inbox.add(data)
        try:
            while connection.is_open and (message := connection.inbox.take()) is not None:
                if connection.is_known:
                    yield connection, message
                else:
                    self._greet(connection, message)
        except WireError as error:
            connection.refuse(str(error))

    def _greet(self, connection: Connection, message: Message) -> None:
        token = message.header.get("token")
        if message.op != "hello" or not isinstance(token, str):
            problem = "the first message must be a hello with the token"
        elif message.header.get("protocol") != PROTOCOL:
            spoken = message.header.get("protocol")
            problem = (
                f"the client speaks protocol {spoken!r}, this server {PROTOCOL}; copy the folder marlnb/client again"
            )
        elif not hmac.compare_digest(token.encode(errors="replace"), self._token):
            problem = "the token is not this server's"
        else:
            connection.is_known = True
            connection.inbox.max_header = GREETING_BYTES + 512 * len(self._welcome["agents"])
            connection.inbox.max_body = self._max_body
            connection.reply("welcome", **self._welcome)
            return
        connection.refuse(problem)

    def _lose(self, connection: Connection) -> Iterator[tuple[Connection, None]]:
        self._close(connection)
        if connection.is_known:
            yield connection, None

    def _close(self, connection: Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._selector.unregister(connection.sock)
            connection.close()
        connection.is_open = False


def _listen(address: str) -> tuple[socket.socket, str]:
    """A listening socket, and its address with the real port."""
    if not address.startswith(UNIX):
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server((host, int(port)), family=family, backlog=MAX_SIMULATORS)
        bound = sock.getsockname()[1]
        return sock, f"[{host}]:{bound}" if family == socket.AF_INET6 else f"{host}:{bound}"
    path = address[len(UNIX) :]
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)  # only the owner may connect
    try:
        sock.bind(path)
        sock.listen(MAX_SIMULATORS)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(umask)
    return sock, address


def _remove_stale(path: str) -> None:
    """Removes a socket file that no process listens at any more.

    Raises:
        OSError: a process listens there, or the path is not a socket.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(f"{path} exists and is not a socket")
    except FileNotFoundError:
        return
    if is_listening(f"{UNIX}{path}"):
        raise OSError("another process already listens there")
    os.unlink(path)
