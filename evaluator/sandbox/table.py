"""The layers of the sandbox in one table: policy, launcher, bubblewrap and self-test read it.

Standard library only, and little of that: the launcher loads it.
"""

from __future__ import annotations

_PRIVILEGE = (("root", "user_ns"), "needs root or a user namespace")


class Layer:
    """One layer, with what is known about it before it is tried.

    Args:
        name: what reports call it.
        needs: pairs of alternatives, one of which must hold (layers, or `root`), and the reason that a report gives where none does.
        namespace: whether it is a namespace; where these do not work they are given up together.
        from_bubblewrap: whether bubblewrap supplies it where that is used.
        not_with_cuda: why it is left out where candidates work on a card; empty where it is not.
        never_given_up: whether a machine on which it does not work runs no candidate.
    """

    def __init__(
        self, name: str, *, needs: tuple[tuple[tuple[str, ...], str], ...] = (), namespace: bool = False, from_bubblewrap: bool = False,
        not_with_cuda: str = "", never_given_up: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.needs = needs
        self.namespace = namespace
        self.from_bubblewrap = from_bubblewrap
        self.not_with_cuda = not_with_cuda
        self.never_given_up = never_given_up


TABLE = (
    Layer("bubblewrap"),
    Layer("user_ns", namespace=True, not_with_cuda="CUDA does not start in one without a /proc of its own"),
    Layer("mount_ns", namespace=True, from_bubblewrap=True, needs=(_PRIVILEGE,)),
    Layer("net_ns", namespace=True, from_bubblewrap=True, needs=(_PRIVILEGE,)),
    Layer("ipc_ns", namespace=True, from_bubblewrap=True, needs=(_PRIVILEGE,), not_with_cuda="as pid_ns"),
    Layer(
        "pid_ns", namespace=True, from_bubblewrap=True, needs=(_PRIVILEGE, (("mount_ns",), "needs a /proc of its own")),
        not_with_cuda="CUDA shares memory between processes of one pid namespace only",
    ),
    Layer("uid"),
    Layer("limits", never_given_up=True),
    Layer("capabilities"),
    Layer("no_new_privs", never_given_up=True),
    Layer("own_proc", needs=((("pid_ns", "landlock"), "needs pid_ns or landlock"),)),
    Layer("landlock"),
    Layer("seccomp"),
)  # fmt: skip
"""Every layer; `bubblewrap` supplies namespaces where it is used, `own_proc` narrows what Landlock lets through."""

LAYERS = tuple(layer.name for layer in TABLE)
"""Names of the layers, as reports list them."""

NEEDS = {layer.name: layer.needs for layer in TABLE}
"""What a layer needs, by its name."""

NAMESPACES = tuple(layer.name for layer in TABLE if layer.namespace)
"""Names of the layers that are namespaces."""

FROM_BUBBLEWRAP = tuple(layer.name for layer in TABLE if layer.from_bubblewrap)
"""Names of the layers that bubblewrap takes over from the launcher."""

NOT_WITH_CUDA = {layer.name: layer.not_with_cuda for layer in TABLE if layer.not_with_cuda}
"""Reasons against layers where candidates work on a card, by name."""

RELAXATIONS: tuple[tuple[str, ...], ...] = (
    (), ("own_proc",), ("pid_ns",), ("net_ns",), ("uid",), ("uid", "own_proc"), NAMESPACES, (*NAMESPACES, "uid", "own_proc"),
    (*NAMESPACES, "uid", "own_proc", "landlock"), tuple(layer.name for layer in TABLE if not layer.never_given_up),
)  # fmt: skip
"""What is given up where the machine or CUDA does not work inside all layers; tried in this order, the weakest loss first."""
