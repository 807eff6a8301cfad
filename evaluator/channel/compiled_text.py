"""What the compiled text of a kernel (PTX) tells: a digest of its code, and instructions by kind. A static count: loops count once."""

from __future__ import annotations

import hashlib
import re
from collections import Counter

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_PLACES = re.compile(r"^\s*(?:\.loc|\.file|\$L__(?:tmp|func_begin|func_end|debug)\w*\s*:|//).*$", re.MULTILINE)
"""Lines that say where in the source an instruction comes from."""
_COMMENT = re.compile(r"\s*//.*$", re.MULTILINE)
_DEBUG = re.compile(r"^\s*\.section\s+\.debug", re.MULTILINE)
"""From here on a text only describes its source."""
_OPCODE = re.compile(r"^(?:@!?%\w+\s+)?([a-z][\w.:]*)[\s;]")
_KINDS = (
    ("tensor core", re.compile(r"wgmma\.mma|mma\.|tcgen05\.mma")),
    ("global load", re.compile(r"ld\.(?:global|volatile\.global|acquire|relaxed)|cp\.async(?!\.(?:commit|wait))|ld\.param\.tma")),
    ("global store", re.compile(r"st\.(?:global|volatile\.global|release|relaxed)")),
    ("shared memory", re.compile(r"(?:ld|st)\.(?:volatile\.)?shared|ldmatrix|stmatrix")),
    ("local memory", re.compile(r"(?:ld|st)\.local")),
    ("atomic", re.compile(r"atom|red\.")),
    ("barrier", re.compile(r"bar\.|barrier|mbarrier|fence|membar")),
    ("branch", re.compile(r"bra|call|ret|exit")),
    ("arithmetic", re.compile(r"fma|add|sub|mul|mad|div|rcp|sqrt|rsqrt|ex2|lg2|tanh|sin|cos|max|min|abs|neg")),
)
"""Kinds by how an opcode begins; the first that fits counts, all others are `other`."""


def digest_code(ptx: str) -> str:
    """The first 16 hex digits of SHA-256 over the code, without the kernel's name, comments and places in its source."""
    code = ptx[: found.start()] if (found := _DEBUG.search(ptx)) else ptx
    for name in set(_ENTRY.findall(code)):
        code = re.sub(rf"(?<![\w$]){re.escape(name)}(?=_param_|(?![\w$]))", "kernel", code)
    code = _COMMENT.sub("", _PLACES.sub("", code))
    lines = (" ".join(line.split()) for line in code.splitlines())
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()[:16]


def count_instructions(ptx: str) -> dict[str, int]:
    """Instructions by kind, the most frequent kinds first."""
    code = ptx[: found.start()] if (found := _DEBUG.search(ptx)) else ptx
    counts: Counter[str] = Counter()
    for line in code.splitlines():
        if opcode := _OPCODE.match(line.strip()):
            counts[next((kind for kind, begins in _KINDS if begins.match(opcode[1])), "other")] += 1
    return dict(counts.most_common())
