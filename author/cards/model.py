"""The card that a plan is made for: its figures, and what was fitted to kernels on cards of its kind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tritonsmith.author.cards.fits import Fits, choose_fits
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import Hardware

_HOPPER = 90
_WAVE = 32
"""Programs are spread in numbers of which this is a divisor."""
_RESERVED = 1024
"""Bytes of shared memory that the driver keeps for each program."""
_PER_PROCESSOR = 4
"""Small programs that keep a processor busy."""


@dataclass(frozen=True)
class CardModel:
    """A card as reading, lowering, fusing and kernels ask for it.

    Args:
        hardware: its entry of the table of cards, or the card of this machine.
        fits: what was fitted to kernels on cards of its kind, or follows from its figures by rule.
    """

    hardware: Hardware
    fits: Fits

    @property
    def processors(self) -> int:
        """Tiles that it does at the same time, one for each processor."""
        return self.hardware.processors

    @property
    def even_processors(self) -> int:
        """Its processors in whole multiples of 32, so that a power of two of rows goes evenly with them."""
        return max(_WAVE, self.processors // _WAVE * _WAVE)

    @property
    def busy_rows(self) -> int:
        """Rows that keep it busy, one program each: about two for each of its processors."""
        return 2 * self.even_processors

    @property
    def busy_programs(self) -> int:
        """Small programs that keep it busy."""
        return _PER_PROCESSOR * self.processors

    @property
    def shared(self) -> int:
        """Bytes of a processor's shared memory."""
        return self.hardware.shared_per_processor

    @property
    def shared_per_block(self) -> int:
        """Bytes of shared memory that one program may have."""
        return self.hardware.shared_per_block

    @property
    def pair_shared(self) -> int:
        """Bytes of shared memory of one of two programs that share a processor."""
        return self.shared // 2 - _RESERVED

    @property
    def registers(self) -> int:
        """32-bit registers of a processor."""
        return self.hardware.registers_per_processor

    @property
    def pair_sums(self) -> int:
        """fp32 sums of a tile of which a processor has room for two programs: an eighth of its registers."""
        return self.registers // 8

    @property
    def long_row(self) -> int:
        """Elements of a row that stays on the chip, at most."""
        return int(self.registers * self.fits.rows.on_chip)

    @property
    def kept_bytes(self) -> int:
        """Bytes that its L2 surely keeps while other data pass through."""
        return int(self.hardware.l2_bytes * self.fits.rows.l2_kept)

    @property
    def cached_bytes(self) -> int:
        """Bytes that stay in its L2 until they are read again."""
        return int(self.hardware.l2_bytes * self.fits.rows.l2_cached)

    @property
    def lost_bytes(self) -> int:
        """Bytes of a tensor that has left its L2 when it is read again."""
        return int(self.hardware.l2_bytes * self.fits.rows.l2_lost)

    @property
    def instruction_rows(self) -> int:
        """Rows of the left operand that one instruction of its tensor cores multiplies: a warp's 16, or a Hopper warpgroup's 64."""
        return 64 if self.hardware.capability == _HOPPER else 16

    def count_resident(self, shared: int, warps: int, registers: int) -> int:
        """Programs that a processor has room for, at least one.

        Args:
            shared: bytes of shared memory of a program.
            warps: of a program.
            registers: of a thread.
        """
        return max(1, min(self.shared // (shared + _RESERVED), self.registers // (32 * warps * registers)))


@cache
def model_card(hardware: Hardware) -> CardModel:
    """The model of a card.

    Example:
        `model_card(CARDS["a100"]).processors` is 108.
    """
    return CardModel(hardware, choose_fits(hardware))


FIRST = model_card(CARDS["h200"])
"""The first card of the table; worked examples are planned for it."""
