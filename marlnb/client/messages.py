"""Messages of a simulator and a server: a JSON header and raw array bytes, both of bounded size; and the errors."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PROTOCOL = 2  # 1 answered the begin of an episode with "begun"
TOKEN_VARIABLE = "MARLNB_TOKEN"
SERVER_FILE = "server.json"
HEADER = struct.Struct("<4sII")  # magic, bytes of the header, bytes of the arrays
MAGIC = b"mnb1"
MAX_HEADER_BYTES = 1 << 20
MAX_BODY_BYTES = 1 << 28
MAX_REWARD = 1e12  # of one report: float32 holds the squares of sums of many
DTYPES = ("float32", "int64", "uint8", "bool")


class ClientError(Exception):
    """The root of the errors that a simulator's side of the connection raises."""


class ConnectionRefused(ClientError):
    """No server at the address within the timeout, another protocol, or a wrong token."""


class InvalidReport(ClientError):
    """A report does not match the environment's groups; the message says what was found and what is expected."""


class EpisodeOver(ClientError):
    """The other side ended this episode (a step limit, a new evaluation); begin another."""


class ServerGone(ClientError):
    """The training or evaluation has ended or crashed, or a request was interrupted; connect again."""


class WireError(ClientError):
    """Bytes that are not a message of this protocol."""


@dataclass
class Message:
    """A header of plain JSON, and arrays by (kind, agent): observation, mask, final, final_mask, action."""

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
