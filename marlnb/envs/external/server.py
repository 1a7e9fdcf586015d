"""The listening end: connections that have shown the token, and their messages, looked at whenever it is polled.

There is no thread: what simulators send waits in their sockets until the environment is stepped.
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

from marlnb.client import PROTOCOL, Inbox, Message, WireError
from marlnb.envs.external.config import UNIX
from marlnb.errors import EnvBuildError

GREETING_BYTES = 4096  # a stranger's first message is that small
GREETING_S = 10.0  # and comes that soon
SENDING_S = 5.0  # a reply that cannot be handed over in that time has lost its reader
MOST_CONNECTIONS = 512


class Connection:
    """One simulator, or a stranger that has not shown the token yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.inbox = Inbox(GREETING_BYTES, 0)
        self.is_known = False
        self.since = time.monotonic()
        self.is_open = True
        sock.settimeout(SENDING_S)

    def reply(self, op: str, arrays: dict[tuple[str, str], np.ndarray] | None = None, **facts: Any) -> None:
        """Sends; a connection that cannot be sent to is closed, which the next poll tells."""
        try:
            self.sock.sendall(Message({"op": op, **facts}, arrays or {}).pack())
        except OSError:
            self.is_open = False


class Server:
    """Listens at `address` for simulators that show `token`.

    Args:
        welcome: what a simulator is told about agents, plain JSON.
        most_body: the most array bytes that a message may have.
    Attributes:
        address: where it listens, its port filled in.
    Raises:
        EnvBuildError: the address is taken, or not one to listen at.
    """

    def __init__(self, address: str, token: str, welcome: dict[str, Any], most_body: int) -> None:
        self._token, self._welcome, self._most_body = token.encode(), welcome, most_body
        self._selector = selectors.DefaultSelector()
        self._connections: set[Connection] = set()
        self._unix_path = address[len(UNIX) :] if address.startswith(UNIX) else None
        try:
            self._socket, self.address = _listening(address)
        except OSError as error:
            self._selector.close()
            raise EnvBuildError(f"cannot listen at {address}: {error}") from error
        self._selector.register(self._socket, selectors.EVENT_READ, None)

    def poll(self, timeout_s: float) -> Iterator[tuple[Connection, Message | None]]:
        """Messages of known simulators that have come, waiting for some at most so long; None: that one is gone."""
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._accept()
            else:
                yield from self._read(key.data)
        for connection in [c for c in self._connections if not c.is_open]:
            yield from self._lose(connection)
        if len(self._connections) > 0:
            self._dismiss_strangers()

    @property
    def n_known(self) -> int:
        """Simulators that are connected and have shown the token."""
        return sum(connection.is_known for connection in self._connections)

    def close(self) -> None:
        for connection in list(self._connections):
            self._forget(connection)
        self._selector.close()
        self._socket.close()
        if self._unix_path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._unix_path)

    def _accept(self) -> None:
        try:
            sock, _ = self._socket.accept()
        except OSError:
            return
        if len(self._connections) >= MOST_CONNECTIONS:
            sock.close()
            return
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(sock)
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _read(self, connection: Connection) -> Iterator[tuple[Connection, Message | None]]:
        try:
            data = connection.sock.recv(1 << 18)
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
            connection.reply("error", message=str(error))
            connection.is_open = False

    def _greet(self, connection: Connection, message: Message) -> None:
        given = message.header.get("token")
        if message.op != "hello" or not isinstance(given, str):
            refusal = "the first message must be a hello with the token"
        elif message.header.get("protocol") != PROTOCOL:
            refusal = f"protocol {message.header.get('protocol')!r} of the client; this server speaks {PROTOCOL}"
        elif not hmac.compare_digest(given.encode(errors="replace"), self._token):
            refusal = "the token is not this server's"
        else:
            connection.is_known = True
            connection.inbox.most_header, connection.inbox.most_body = self._most_header(), self._most_body
            connection.reply("welcome", **self._welcome)
            return
        connection.reply("error", message=refusal)
        connection.is_open = False

    def _most_header(self) -> int:
        return GREETING_BYTES + 512 * len(self._welcome["agents"])

    def _lose(self, connection: Connection) -> Iterator[tuple[Connection, None]]:
        self._forget(connection)
        if connection.is_known:
            yield connection, None

    def _forget(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._selector.unregister(connection.sock)
            connection.sock.close()
        connection.is_open = False

    def _dismiss_strangers(self) -> None:
        now = time.monotonic()
        for connection in [c for c in self._connections if not c.is_known and now - c.since > GREETING_S]:
            self._forget(connection)


def _listening(address: str) -> tuple[socket.socket, str]:
    if not address.startswith(UNIX):
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server((host, int(port)), family=family, backlog=128)
        bound = sock.getsockname()[1]
        return sock, f"[{host}]:{bound}" if family == socket.AF_INET6 else f"{host}:{bound}"
    path = address[len(UNIX) :]
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # the owner alone may connect
    try:
        sock.bind(path)
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock, address


def _remove_stale(path: str) -> None:
    """Removes a socket that nobody listens at any more.

    Raises:
        OSError: somebody does, or something else is there.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(f"{path} is there and is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            os.unlink(path)
            return
    raise OSError("somebody listens there already")
