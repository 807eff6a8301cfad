"""What a candidate's text compiles to, handed from the process that compiles it to those that run it: files of Triton's cache.

A kernel takes seconds to compile, and a strict verdict has five processes that would each do it again. The process that compiles has
never seen an input, so what it hands on follows from the text alone. Nothing rests on it: a file that does not fit is not found, and a
candidate that puts another kernel there could do so in its own process too.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import zlib
from pathlib import Path

_SUFFIXES = (".json", ".cubin", ".ptx", ".ttir")
"""Files that a process needs that runs a kernel or tells about it."""
_GROUP = "__grp__"
"""How the names of files begin that list the others, by absolute paths."""
_NAME = re.compile(r"[\w-]{1,200}/[\w.-]{1,200}")
"""A folder of the cache and a file in it."""
_MOST_FILES = 600
_MOST_BYTES = 8 << 20
"""Of all files, compressed and written as text; what is beyond is compiled again."""


def locate_code(folder: Path, task: str, kernel: str) -> Path:
    """The file below a folder with what a kernel of that digest compiles to, for a task of that digest; it may be missing."""
    return folder / task / f"{kernel}.json"


def pack_cache(folder: Path) -> dict[str, str]:
    """The files of a cache as text by `folder/name`, as many as fit."""
    packed: dict[str, str] = {}
    room = _MOST_BYTES
    for file in sorted(folder.glob("*/*")):
        if file.suffix not in _SUFFIXES or file.is_symlink() or not file.is_file():
            continue
        text = base64.b64encode(zlib.compress(file.read_bytes())).decode()
        room -= len(text)
        if room < 0 or len(packed) == _MOST_FILES:
            break
        packed[f"{file.parent.name}/{file.name}"] = text
    return packed


def keep_packed(packed: object, path: Path) -> None:
    """Write what a candidate's process packed to a file, whole once it is there; nothing where it is not what `pack_cache` gives."""
    if not isinstance(packed, dict) or not 0 < len(packed) <= _MOST_FILES:
        return
    if not all(isinstance(name, str) and _NAME.fullmatch(name) and isinstance(text, str) for name, text in packed.items()):
        return
    if sum(map(len, packed.values())) > _MOST_BYTES:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(packed))
    draft.replace(path)


def unpack_cache(file: Path, folder: Path) -> None:
    """Put packed files into the cache of this process, which runs candidate code. A file that cannot be read is left out."""
    for name, text in json.loads(file.read_text()).items():
        place = folder / name
        try:
            content = zlib.decompress(base64.b64decode(text))
            if place.name.startswith(_GROUP):
                listed = json.loads(content)["child_paths"]
                content = json.dumps({"child_paths": {child: str(place.with_name(child)) for child in listed}}).encode()
        except (ValueError, KeyError, TypeError, binascii.Error, zlib.error):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
