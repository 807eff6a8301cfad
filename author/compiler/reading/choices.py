"""Choices of a cut: which parts of a forward are kernels of their own, and which stay PyTorch calls, as a setting of the recipe."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

SETTING = "cut"
"""The name of the setting. Without it, predicted costs decide."""


class Choice(StrEnum):
    """What becomes of a node of the trace."""

    OWN = "own"
    """A kernel of its own, whatever is predicted."""
    OWN_LAST = "own_last"
    """A convolution's own kernel, on an image whose channels are neighbours in memory."""
    APART = "apart"
    """A kernel of its own that computes no second product, though a pair could be one."""
    LIBRARY = "library"
    """PyTorch's call, as the module makes it."""
    CHANNELS_LAST = "channels_last"
    """PyTorch's call on images whose channels are neighbours in memory."""


CALLS = (Choice.LIBRARY, Choice.CHANNELS_LAST)
"""Choices that leave a node to PyTorch."""


def read_cut(setting: str) -> dict[str, Choice]:
    """The choices by node.

    Args:
        setting: such as `conv1=channels_last linear=library`.

    Raises:
        ValueError: for a word that is no choice.
    """
    pairs = (word.rpartition("=") for word in setting.split())
    return {node: Choice(choice) for node, _, choice in pairs}


def write_cut(choices: Mapping[str, Choice]) -> str:
    """The setting for choices by node: `write_cut({"conv1": Choice.LIBRARY})` is `conv1=library`."""
    return " ".join(f"{node}={choice.value}" for node, choice in sorted(choices.items()))


def list_apart(choices: Collection[str]) -> frozenset[str]:
    """The nodes whose products share no kernel with another product.

    Args:
        choices: nodes, with their choices where these are known.
    """
    return frozenset(node for node, choice in choices.items() if choice is Choice.APART) if isinstance(choices, Mapping) else frozenset()
