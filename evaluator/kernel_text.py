"""A candidate's text with its content address, as it travels from the node to the last door of the evaluator."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


def text_sha(text: str) -> str:
    """Content address of a kernel or task: the first 16 hex digits of SHA-256 over UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class KernelText:
    """A candidate's text and its content address, made once, where both are known.

    It travels as a value, over pipes as a JSON object; only the inbox of a confined process holds it as a file.
    """

    text: str
    sha: str

    @classmethod
    def of(cls, text: str) -> KernelText:
        """The record of a text whose address is not known yet."""
        return cls(text, text_sha(text))
