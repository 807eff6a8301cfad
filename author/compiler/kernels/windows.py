"""The kernel of a convolution of each channel by itself, whose channels are neighbours in memory.

A program has some channels and a run of places. What its windows read lies in registers, one vector along channels for each place, and so
do the weights. No value is read twice by a program, and what is computed ahead of the windows is computed once for all taps.
"""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.regions import RowRegion
from tritonsmith.author.compiler.fusing.space import ACROSS, DOWN
from tritonsmith.author.compiler.fusing.windows import choose_channels, count_tiles, list_spans
from tritonsmith.author.compiler.ir.code import Expression, Name, Statement, number
from tritonsmith.author.compiler.ir.indices import ZERO, Coordinates, Guard, Index, count, ravel, unravel, variable
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import ChannelWindows, Tensor, TensorView
from tritonsmith.author.compiler.kernels.emitter import Arguments, Emitter
from tritonsmith.author.compiler.kernels.kernel import Kernel
from tritonsmith.author.compiler.kernels.pieces import assign, loop, widen

_BIG = 2**31
"""Elements from which on places need numbers of 64 bits."""
IMAGE, CHANNEL, BELOW, BESIDE = "image", "channel", "below", "beside"
"""Variables: the image, channels, and the place that is read, counted from the zeros ahead of the image on."""
_NAMES = (IMAGE, CHANNEL, BELOW, BESIDE, DOWN, ACROSS, "pid", "first", "upper", "window", "taps", "sums", "fresh", "total", "line",
          "i", "r", "y")  # fmt: skip
"""Names of the kernel's own."""
_RUN, _LINES, _CHANNELS = Name("RUN"), Name("LINES"), Name("CHANNELS")


def write_windows(region: RowRegion, windows: ChannelWindows, name: str) -> list[Kernel]:
    """The kernel of a region whose windows a program keeps in registers."""
    return [WindowsWriter(region, windows).write(name)]


class WindowsWriter:
    """Writes the kernel of a region.

    Args:
        region: what it computes; one sum over windows.
        windows: those.
    """

    def __init__(self, region: RowRegion, windows: ChannelWindows) -> None:
        self.region, self.windows = region, windows
        self.anchor = region.anchors[0]
        self.shape = self.anchor.source.shape[: len(windows.window) + 2]
        self.images, *outputs, self.channels = self.shape
        self.outputs = tuple(outputs)
        self.flat = len(outputs) == 1
        self.tile = choose_channels(region, windows)
        self.counts = count_tiles(windows, self.outputs, self.tile)
        self.spans = list_spans(windows, self.tile)
        self.edge = self._open_edge()
        self.arguments = Arguments()
        self.arguments.used |= {*_NAMES}
        down, across = (1, *self.outputs) if self.flat else self.outputs
        bounds = {
            CHANNEL: expression("{c} < {n}", c=Name(CHANNEL), n=self.channels) if self.channels % self.tile.channels else None,
            DOWN: expression("{y} < {n}", y=Name(DOWN), n=down) if down % self.tile.lines else None,
            ACROSS: expression("{x} < {n}", x=Name(ACROSS), n=across) if across % self.tile.run else None,
        }  # fmt: skip
        self.emitter = Emitter(self.arguments, lambda one: id(one) in region.reads, bounds, frozenset((IMAGE, CHANNEL)))
        self.emitter.rounded = region.rounded
        self.emitter.outcomes[id(self.anchor), 0] = "total"
        self.emitter.names["total"] = frozenset((CHANNEL, DOWN, ACROSS))

    def write(self, name: str) -> Kernel:
        """The kernel."""
        emitter = self.emitter
        if self.flat:
            emitter.line(statement("window = ()"))
            self._read_line()
            self._read_weights()
            self._finish(self._sum_line())
        else:
            self._read_weights()
            self._sum_lines()
            self._finish([statement("total = sums[line * RUN + r]")])
        big = max(self.arguments.largest, self.region.space.rows) >= _BIG
        constants = [("CHANNELS", self.tile.channels), ("RUN", self.tile.run), *([] if self.flat else [("LINES", self.tile.lines)])]
        programs = self.images * count(self.counts)
        return Kernel(
            name=name, does="", arguments=self.arguments.list(), sizes=[], constants=constants,
            body=[*self._head(big), *emitter.scopes[0].lines], grid=expression("({programs},)", programs=programs),
            stores=list(self.region.stores), warps=self.tile.warps,
        )  # fmt: skip

    def _head(self, big: bool) -> list[Statement]:
        """The lines that say which channels and places a program has; neighbouring programs have neighbouring channels."""
        blocks, high, wide = self.counts
        block, across, down, image = unravel_tiles(variable("pid", self.images * blocks * high * wide), (self.images, high, wide, blocks))
        lines = [
            statement("pid = tl.program_id(0)"),
            statement("channel = {block} * CHANNELS + tl.arange(0, CHANNELS)", block=block) if blocks > 1 else
            statement("channel = tl.arange(0, CHANNELS)"),
            statement("first = {place} * RUN", place=across) if wide > 1 else statement("first = 0"),
        ]  # fmt: skip
        if not self.flat:
            lines.append(statement("upper = {place} * LINES", place=down) if high > 1 else statement("upper = 0"))
        return [*lines, assign(IMAGE, widen(image, big))]

    def _read_weights(self) -> None:
        """The loop that reads a vector along channels for each tap."""
        windows, emitter = self.windows, self.emitter
        emitter.line(statement("taps = ()"))
        emitter.open(frozenset(("i",)))
        at = (*unravel(variable("i", windows.taps), windows.window), ZERO, variable(CHANNEL, self.channels))
        emitter.line(statement("taps = taps + ({x},)", x=emitter.read(windows.weights, at)))
        emitter.close(loop("i", windows.taps, kind="tl.static_range"))

    def _read_line(self) -> None:
        """The loop that reads the places of a line."""
        emitter = self.emitter
        emitter.open(frozenset((BESIDE,)))
        first = _scale("first", self.windows.stride[-1])
        emitter.line(statement("beside = {first} + i", first=first))
        emitter.line(statement("window = window + ({x},)", x=emitter.read(self.edge, self._locate_edge())))
        emitter.close(loop("i", self.spans[1], kind="tl.static_range"))

    def _open_edge(self) -> Tensor:
        """The image with its rim, so far as programs read it."""
        image, padding = self.windows.image, self.windows.padding

        def move(at: Coordinates) -> Coordinates:
            return (at[0], *(index - rim for index, rim in zip(at[1:-1], padding, strict=True)), at[-1])

        def guard(at: Coordinates) -> tuple[Guard, ...]:
            return tuple(Guard(index, 0, size) for index, size in zip(move(at)[1:-1], image.shape[1:-1], strict=True))

        shape = (self.images, *self._list_rims(), self.channels)
        return TensorView(shape=shape, dtype=image.dtype, source=image, move=move, guard=guard)

    def _list_rims(self) -> list[int]:
        """Places of the image and its rim along each axis, those that programs read beyond the last window included."""
        _, high, wide = self.counts
        tiles = [(wide, self.tile.run)] if self.flat else [(high, self.tile.lines), (wide, self.tile.run)]
        spans = self.spans[-len(tiles) :]
        return [(many - 1) * size * step + span for (many, size), step, span in zip(tiles, self.windows.stride, spans, strict=True)]

    def _locate_edge(self) -> Coordinates:
        names = (BESIDE,) if self.flat else (BELOW, BESIDE)
        places = (variable(name, size) for name, size in zip(names, self._list_rims(), strict=True))
        return (variable(IMAGE, self.images), *places, variable(CHANNEL, self.channels))

    def _sum_line(self) -> list[Statement]:
        """The lines that sum up a window of a line."""
        return list(statements(
            """
            total = taps[0] * window[{start}]
            for i in tl.static_range(1, {taps}):
                total += taps[i] * window[{place}]
            """,
            start=_scale("r", self.windows.stride[-1]), taps=self.windows.taps, place=self._find_tap(),
        ))  # fmt: skip

    def _find_tap(self) -> Expression:
        """Where a tap lies among what a line has in registers."""
        start, tap = _scale("r", self.windows.stride[-1]), _scale("i", self.windows.dilation[-1])
        return expression("{start} + {tap}", start=start, tap=tap)

    def _sum_lines(self) -> None:
        """The loop over lines of the image: each is read once, and added to the sums of all places that see it."""
        emitter, windows = self.emitter, self.windows
        emitter.line(*statements(
            """
            sums = ()
            for r in tl.static_range(LINES * RUN):
                sums = sums + (tl.zeros((CHANNELS,), tl.float32),)
            """
        ))  # fmt: skip
        emitter.open(frozenset((BELOW,)))
        emitter.line(statement("below = {upper} + y", upper=_scale("upper", windows.stride[0])), statement("window = ()"))
        self._read_line()
        taps_down, apart = windows.window[0], windows.dilation[0]
        row = expression("(y - {start})", start=_scale("line", windows.stride[0]))
        test = expression("{row} >= 0 and {row} < {span}", row=row, span=(taps_down - 1) * apart + 1)
        if apart > 1:
            test = expression("{test} and {row} % {apart} == 0", test=test, row=row, apart=apart)
            row = expression("{row} // {apart}", row=row, apart=apart)
        emitter.line(*statements(
            """
            fresh = ()
            for line in tl.static_range(LINES):
                for r in tl.static_range(RUN):
                    total = sums[line * RUN + r]
                    if {test}:
                        for i in tl.static_range({taps}):
                            total += taps[{row} * {taps} + i] * window[{place}]
                    fresh = fresh + (total,)
            sums = fresh
            """,
            test=test, taps=windows.window[1], row=row, place=self._find_tap(),
        ))  # fmt: skip
        emitter.close(loop("y", self.spans[0], kind="tl.static_range"))

    def _finish(self, sums: list[Statement]) -> None:
        """The loop over places of the result: what is done with a sum, and where it is stored."""
        emitter = self.emitter
        if not self.flat:
            emitter.open(frozenset((DOWN,)))
            emitter.line(statement("down = upper + line"))
        emitter.open(frozenset((ACROSS,)))
        emitter.line(*sums, statement("across = first + r"))
        names = [(ACROSS, self.outputs[-1])] if self.flat else list(zip((DOWN, ACROSS), self.outputs, strict=True))
        at = (variable(IMAGE, self.images), *(variable(name, size) for name, size in names), variable(CHANNEL, self.channels))
        whole = ravel(at, self.shape)
        for value in self.region.stores:
            place = at if value.shape == self.shape else unravel(whole, value.shape)
            emitter.store(value, ravel(place, value.shape), emitter.read(value, place), frozenset((CHANNEL, DOWN, ACROSS)))
        emitter.close(loop("r", _RUN, kind="tl.static_range"))
        if not self.flat:
            emitter.close(loop("line", _LINES, kind="tl.static_range"))


def unravel_tiles(pid: Index, counts: tuple[int, int, int, int]) -> tuple[Expression, Expression, Expression, Expression]:
    """Which channels, places across, places down and image a program has, by its number."""
    image, down, across, block = unravel(pid, counts)
    return block.code, across.code, down.code, image.code


def _scale(name: str, factor: int) -> Expression:
    """A variable times a number."""
    return Name(name) if factor == 1 else expression("{name} * {factor}", name=Name(name), factor=number(factor))
