"""Addresses of servers: whether a process listens at one, and names for the next ones."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator

UNIX = "unix:"
PROBE_S = 1.0


def is_listening(address: str) -> bool:
    """Whether a process takes connections at `host:port` or `unix:/path`."""
    try:
        if address.startswith(UNIX):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.connect(address[len(UNIX) :])
        else:
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S).close()
    except (OSError, ValueError):
        return False
    return True


def endings() -> Iterator[str]:
    """What is added to a name, where others have the names before: nothing, then -2, -3 and so on."""
    yield ""
    yield from (f"-{number}" for number in itertools.count(2))
