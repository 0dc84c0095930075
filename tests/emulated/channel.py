# SPDX-License-Identifier: Apache-2.0
"""Frames between the test runner and the guest's agent, over a socket outside and a virtio port inside.

A frame is one byte for its kind, four bytes for its length, and the payload.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Mapping
from typing import Any

# To the guest.
SETUP = b"S"  # JSON: hostname, shared directory, time, ...
COMMAND = b"C"  # JSON: argv, cwd, env, timeout
# From the guest.
HELLO = b"H"  # the agent runs and waits for SETUP
READY = b"R"  # set up
STDOUT = b"O"
STDERR = b"E"
EXIT = b"X"  # JSON: status, timed_out; or errno, reason, file of a command that could not start

_HEADER = struct.Struct(">cI")
#: Linux copies each write to a virtio port into one buffer of at most this size (bytes).
_PIECE = 32 << 10


class ChannelClosedError(Exception):
    """The other side has disconnected."""


class ChannelTimeoutError(Exception):
    """No complete frame arrived in time."""


class Channel:
    """Sends and receives frames on a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._received = bytearray()

    def fileno(self) -> int:
        return self._descriptor

    def send(self, kind: bytes, payload: bytes) -> None:
        rest = memoryview(_HEADER.pack(kind, len(payload)) + payload)
        while rest:
            try:
                # A virtio port may accept only a part.
                rest = rest[os.write(self._descriptor, rest[:_PIECE]) :]
            except (BrokenPipeError, ConnectionResetError) as error:
                raise ChannelClosedError from error

    def send_json(self, kind: bytes, document: Mapping[str, Any]) -> None:
        self.send(kind, json.dumps(document).encode())

    def receive(self, deadline: float | None = None) -> tuple[bytes, bytes]:
        """Return the next frame's kind and payload; *deadline* is a time.monotonic()."""
        while (frame := self._buffered()) is None:
            if deadline is not None and not _readable(self._descriptor, deadline):
                raise ChannelTimeoutError
            self.fill()
        return frame

    def fill(self) -> None:
        """Read the available bytes, at least one."""
        try:
            data = os.read(self._descriptor, 1 << 16)
        except ConnectionResetError as error:
            raise ChannelClosedError from error
        if not data:
            raise ChannelClosedError
        self._received += data

    def _buffered(self) -> tuple[bytes, bytes] | None:
        """Return the next frame if all of it has been read."""
        if len(self._received) < _HEADER.size:
            return None
        kind, length = _HEADER.unpack_from(self._received)
        end = _HEADER.size + length
        if len(self._received) < end:
            return None
        payload = bytes(self._received[_HEADER.size : end])
        del self._received[:end]
        return kind, payload


def document(payload: bytes) -> dict[str, Any]:
    """Return the JSON document of a frame."""
    parsed: dict[str, Any] = json.loads(payload)
    return parsed


def _readable(descriptor: int, deadline: float) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(0.0, deadline - time.monotonic()) * 1000))
