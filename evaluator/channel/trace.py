"""How one forward is written down for another process: a header, events as JSON, digests of kept tensors, bytes of tensors not made in it.

The runner writes it into a shared block, the oracle copies it, the replaying process reads the copy. No part of it is believed: it can
only ask for launches and operators, which are then really done and counted.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TRACE_BYTES = 1 << 30
"""Size of the shared block; untouched pages of it cost nothing."""
DIGEST_BYTES = 16
INPUTS = 0
"""Number of the storage that holds the input slots."""
_HEADER = struct.Struct("<QQQ")


class Unreplayable(Exception):
    """Something that another process cannot do again; the message ends the sentence 'cannot be judged without a card: '."""


def digest(content: bytes | memoryview) -> bytes:
    """What stands for the bytes of a storage."""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True)
class ForwardTrace:
    """One forward as it was written down."""

    events: list[dict[str, Any]]
    digests: frozenset[bytes]
    """Of tensors as they were at the end of the call, and of those that the call found already there."""
    blobs: bytes


def write_trace(block: memoryview, events: Sequence[dict[str, Any]], digests: Sequence[bytes], blobs: Sequence[bytes]) -> None:
    """Fill the block. Raises Unreplayable when it is too small."""
    text, marks = json.dumps(events).encode(), b"".join(digests)
    size = sum(map(len, blobs))
    if _HEADER.size + len(text) + len(marks) + size > len(block):
        block[: _HEADER.size] = _HEADER.pack(0, 0, 0)
        raise Unreplayable(f"forward uses more than {len(block) >> 20} MiB of tensors that it did not make, take a smaller size")
    block[: _HEADER.size] = _HEADER.pack(len(text), len(marks), size)
    place = _HEADER.size
    for part in (text, marks, *blobs):
        block[place : place + len(part)] = part
        place += len(part)


def copy_trace(block: memoryview, *, blobs: bool) -> bytes:
    """The used part of a block, without the tensors' bytes where they are not wanted."""
    text, marks, size = _HEADER.unpack(block[: _HEADER.size])
    size = size if blobs else 0
    whole = min(_HEADER.size + text + marks + size, len(block))
    return _HEADER.pack(text, marks, size) + bytes(block[_HEADER.size : whole])


def read_trace(data: bytes | memoryview) -> ForwardTrace:
    """The inverse of write_trace on a copy. Raises ValueError for what is no trace."""
    text, marks, size = _HEADER.unpack(bytes(data[: _HEADER.size]))
    if not text or _HEADER.size + text + marks + size > len(data):
        raise ValueError("the trace is empty or cut off")
    start = _HEADER.size
    events = json.loads(bytes(data[start : start + text]))
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise ValueError("the trace is not a list of events")
    found = bytes(data[start + text : start + text + marks])
    start += text + marks
    digests = frozenset(found[place : place + DIGEST_BYTES] for place in range(0, len(found), DIGEST_BYTES))
    return ForwardTrace(events, digests, bytes(data[start : start + size]))
