"""A candidate's text with its content address, as it travels through the evaluator."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tritonsmith.evaluator.schema import text_sha


@dataclass(frozen=True)
class KernelText:
    """A candidate's text and its content address, made once where the text enters the evaluator.

    It travels as a value, over pipes as a JSON object; only the inbox of a confined process holds it as a file.
    """

    text: str
    sha: str

    @classmethod
    def of(cls, text: str) -> KernelText:
        """The record of a text; the only place of the evaluator that computes a candidate's content address."""
        return cls(text, text_sha(text))

    def as_message(self) -> dict[str, str]:
        """The object that stands for this record in a request; `KernelText(**message)` is the inverse."""
        return asdict(self)
