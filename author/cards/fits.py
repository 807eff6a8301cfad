"""Everything that was fitted to measured kernels: one table for each kind of card, and a rule for a card of another kind.

A fit is a share of one of the card's own figures, an absolute figure, or the bound of a way that pays on a card that was measured:

    a share of tensor cores   share = 1 / (1 + (1 / fitted - 1) * b)
                              b: operations of tensor cores for each clock of a processor, over those of the fitted card. What keeps them
                              waiting is done by threads, so a card with slower tensor cores reaches a larger share of them.
    a figure of processors    times processors * clock, over those of the fitted card
    a figure of memory        times the memory's rate, over that of the fitted card
    operations for a byte     times (rate of 16-bit products / the memory's rate), over that of the fitted card
    a step in time            over the clock, times that of the fitted card
    a share of fp32, of L2    as it is: threads, caches and registers are compared with themselves
    or of registers
    a way that pays there     not taken: nobody has measured whether it pays here

A card of a known kind keeps shares, bounds and ways. Its absolute figures follow from its own by the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import Hardware


@dataclass(frozen=True, kw_only=True)
class ProductFits:
    """Kernels of products: shares of the rate of tensor cores, and what else bounds them."""

    ahead: float
    """Share of the fp16 rate where fp16 parts are made ahead of the product."""
    in_loop: float
    """The same where the loop over the depth makes them."""
    matrix_tf32: float
    matrix_half: float
    """Share of a library's rate that a product of matrices reaches in TF32, and of 16-bit values that are read by pointers."""
    matrix_described: float
    """The same of 16-bit values that are read by tensor descriptors, in programs that take tiles in turn; 0 where that is not taken."""
    matrix_split: float
    """The same of tiles whose columns are in two sums, such as 256 + 64; 0 where such tiles are not taken."""
    gated: float
    """The same of pairs of products that one kernel computes; 0 where such kernels are not taken."""
    joined: float
    """Seconds of the card for each value in which a pair meets: it is computed and stored while nothing is multiplied."""
    joined_apart: float
    """The same for each value of a kernel of one product that reads what a call gave of the other one."""
    integers: tuple[float, float]
    """Seconds for each weight of whole numbers in a product of few rows, and for each of these rows besides; zeros where none are taken."""
    half_l2_rate: float
    """Bytes that tiles of 16-bit matrices read in a second out of the caches."""
    window_described: float
    """Share of the rate that convolutions of 16-bit images with channels last reach, tiles at work alone; 0 where that is not taken."""
    window_tf32: float
    window_half: float
    """The same where addresses are computed one by one, as in a convolution."""
    split_rate: float
    """Elements of windows that the card splits in a second in the loop."""
    split_few_rate: float
    """The same with masks, or for few filters."""
    l2_rate: float
    """Bytes that tiles read in a second out of the caches."""
    stored: float
    """Seconds of the card for each sum of a tile, which is stored while nothing is multiplied."""
    scattered: float
    """Seconds of the card for each value that is stored apart from its neighbours (of two strides)."""
    window_flops: float
    """Operations for each element of an image from which on a pass that splits it ahead pays; it moves 8 bytes for each element."""
    matrix_flops: float
    """The same for matrices and windows of one tap."""
    filled_flops: float
    """Operations for each value of an image with zeros for further channels, from which on these pay."""


@dataclass(frozen=True, kw_only=True)
class WindowFits:
    """Convolutions of each channel by itself."""

    taps: float
    """Taps in a second of kernels that read each tap by itself, with its address and its mask."""
    inner_taps: float
    """The same without a mask, where no window goes beyond the edge."""
    held: float
    """Share of the rate of instructions that kernels reach which keep the values of several windows in registers."""
    library: float
    """Taps in a second of a library's call."""


@dataclass(frozen=True, kw_only=True)
class CallFits:
    """Shares of the card's rate that a library's calls reach."""

    matrix: float
    stored: float
    """Of a product of 16-bit matrices: the share of its result's way to memory in which nothing is multiplied."""
    window: float
    """A convolution in TF32 or of 16-bit values."""
    half_axes: tuple[float, float, float]
    """By axes of the image: such a convolution of 16-bit values over that; of three axes from 16 channels on."""
    groups: float
    """A convolution in groups."""
    fp32_least: float
    fp32_each: float
    fp32_most: float
    """A convolution of fp32 values: without channels, for each channel, and at most."""
    spread: tuple[float, float, float]
    """By axes of the image: a transposed convolution with a stride, from 32 channels on."""
    any_call: float
    """The products of a call of which no more is known, over the fp32 rate."""


@dataclass(frozen=True, kw_only=True)
class TileFits:
    """Ways of kernels of products that paid on a card of the kind."""

    low_rows: int
    """Rows of a tile up to which a convolution with parts made ahead reads a step when it multiplies it; 0 for never."""
    few_steps: int
    """Steps of such a convolution's sum, at most."""
    few_channels: int
    """Channels of a convolution whose threads get fewer registers, so that three programs fit on a processor; 0 for none."""
    low_registers: int
    """Registers of a thread of low tiles with short sums: four programs of four warps have those of a processor."""
    third_registers: int
    """Registers of a thread with which three programs of four warps fit; 0 where the compiler decides."""
    once_filters: tuple[int, int]
    """Filters of a convolution of few weights, at least and at most, whose whole depth is multiplied at once; (1, 0) for never."""
    once_depth: tuple[int, int]
    """Depth of all taps of such a convolution, at least and at most."""
    once_sums: int
    """Sums of a thread up to which a product that is multiplied at once has so many registers."""
    other_registers: int
    """Registers that a thread needs besides its sums."""


@dataclass(frozen=True, kw_only=True)
class HeadFits:
    """Blocks of attention; threads have as many registers on every card, so the same heads are small and wide."""

    wide: int
    """Features of a head that leave registers for 32 keys at once."""
    small: int
    """Features of a head that are few: such queries do with four warps."""


@dataclass(frozen=True, kw_only=True)
class RowFits:
    """Kernels along rows, and elementwise ones."""

    whole_over: int
    """The longest row of a program is shorter by this where it would be read once anyway, or where more than its values is held."""
    wider: int
    """Times as many places, and half as many for a thread, where a row is gone along several times."""
    long: int
    """Places of a row that a program holds, from which on half as many for a thread are faster; 0 for none."""
    apart: int
    """Times as many elements for a thread that keeps whole rows whose places lie apart, each read and written once."""
    small: int
    """Elements so few that a launch takes longer than reading them."""
    split: int
    """Elements of a row that are worth several programs and a second launch."""
    on_chip: float
    """Elements of the longest row that stays on the chip, over the registers of a processor."""
    l2_kept: float
    """Share of L2 that surely stays while other data pass through."""
    l2_cached: float
    """Share of L2 whose data stay until they are read again."""
    l2_lost: float
    """A tensor of so many times the L2 has left it when it is read again."""


@dataclass(frozen=True, kw_only=True)
class FamilyFits:
    """Recurrent steps, and efficiencies of recipes outside the compiler."""

    step: float
    """Seconds of a recurrent step whose weights are few."""
    short_product: int
    """Weights of a recurrent program's tile that shorter ones need not undercut."""
    chain_ahead: float
    chain_in_loop: float
    """Shares of the fp16 rate of one product of matrices, with parts made ahead and in the loop."""
    chain_large: float
    """Operations from which one product of matrices has tiles of the largest size."""
    chain_half_rate: float
    """Bytes that tiles of one product of 16-bit matrices read in a second out of the caches."""
    chain_half_shallow_rate: float
    """The same of tiles of a depth of 32 elements."""
    network_deep: float
    """Share of the sum of their steps that networks of many convolutions take."""
    network_products: float
    """Share of the fp16 rate of products of channels-last images."""
    network_expected: float
    """Share of the rate of products that these kernels are expected to reach, as analyses say."""
    network_gathered: float
    """Elements of windows of forward's own input that the card reads in a second, for up to 128 filters."""
    network_caches: float
    """Bytes that windows read in a second out of the caches."""


@dataclass(frozen=True, kw_only=True)
class Fits:
    """What was fitted to kernels of one kind of card."""

    kind: str
    """What NVIDIA calls the kind; `by rule` for another one."""
    fitted_on: str
    """The entry of the table of cards whose figures belong to the absolute ones."""
    products: ProductFits
    windows: WindowFits
    calls: CallFits
    tiles: TileFits
    heads: HeadFits
    rows: RowFits
    families: FamilyFits


HOPPER = Fits(
    kind="Hopper",
    fitted_on="h200",
    products=ProductFits(
        # 90 kernels of products and convolutions, 2026-11-24. Shares of TF32 and of windows of 16-bit values are assumed.
        ahead=0.8, in_loop=0.38, matrix_tf32=0.7, window_tf32=0.4, window_half=0.2,
        # Products of bf16 matrices beside cuBLAS, whole rounds of tiles of 128 x 256 (M x N x K, 2026-11-28): by pointers 0.83
        # (4096 x 4096 x 4096), 0.92 (8192 x 4096 x 1024), 0.78 (2048 x 11008 x 4096), by descriptors 0.98, 0.99, 0.93; predicted 0.84,
        # 0.84, 0.76 and 0.97, 0.97, 0.87. Small tiles read 1.0e13 to 1.27e13 bytes in a second, and by that they are bound: 64 rows of
        # 4096 x 4096 take 10.9 us (0.74 of cuBLAS), 512 x 3072 x 768 takes 7.2 us (0.82).
        # Pairs in modules with cuBLAS behind them, cold L2, 2026-11-28 (raw/pairs_h200): GEGLU 8192 x 640 to 2 x 2560 and back in fp16
        # 136.0 us, SwiGLU 2048 x 2048 to 2 x 5632 in bf16 202.0, 16384 x 1024 to 2 x 2816 398.5. Less the second product as predicted
        # they take 100, 141 and 274 us; predicted 92, 148, 294. `torch.compile` takes 163.7, 204.2 and 475.1 for the modules.
        # A call and a kernel that joins take 220.6 and 455.8 us for the last two: 96 and 198 us of that for the kernel; predicted 92, 220.
        # 8192 x 2560 to 640 in one round of 128 x 320 takes 8.7 us longer than cuBLAS, for which 36 us are predicted.
        matrix_half=0.87, matrix_described=1.0, matrix_split=0.8, gated=1.0, joined=1.0e-12, joined_apart=2.1e-12,
        half_l2_rate=1.1e13,
        # bf16 rows, cold L2, 2026-11-28 (raw/integers_h200): 4096 x 4096 of int8 take 14.0 us with 16 rows, 11008 x 4096 take 66 us with
        # 64. Weights of 4 bits take 1.3 times as long as predicted.
        integers=(6.2e-13, 1.33e-14),
        split_rate=2e11, split_few_rate=1e11,  # 45 to 560 of 1e9, by task
        l2_rate=8e12, stored=2.9e-12, scattered=1.1e-11,
        # Two convolutions of fp16 images by descriptors, in kernels of this form written by hand, 2026-11-28: 8 x 320 and 8 x 640 channels
        # at 32 x 32 to 640 take 46 and 87 us, where the library without a bias takes 64 and 105. Predicted: 46 and 92.
        # Places were the rows of those kernels; they are the columns of the ones that are written. The UNet block that has them takes
        # 183 us by its strict verdict, where 185 to 190 were predicted.
        window_described=0.97,
        # The same kernels: windows of several taps that are split in the loop reach a fifth of the rate, matrices two thirds.
        window_flops=250.0, matrix_flops=1000.0, filled_flops=250.0,
    ),
    windows=WindowFits(
        # Kernels that read each tap: 2.4e9 taps of fp32 with masks in 1.0 ms (KernelBench level 1, 86), 2.7e9 without in 0.64 ms (85).
        # The library took 54 us for 1.3e8 taps of fp16 (16 x 512 x 512, 31 taps; H200, 2026-11-28), the author's kernel 11.6 us of which
        # its instructions are 9.3 (raw/windows_h200).
        taps=2.4e12, inner_taps=4.2e12, held=0.8, library=2.4e12,
    ),
    calls=CallFits(
        # cuBLAS takes 97 us for 8192 x 4096 x 1024, 176 for 4096 x 4096 x 4096 and 246 for 2048 x 11008 x 4096 in bf16 (2026-11-28;
        # raw/products_h200). By these figures: 97, 179, 240.
        matrix=1.0, stored=0.6,
        # 40 convolutions of fp32 values, 2026-11-24. `window`, `groups` and `any_call` are assumed.
        # Of 16-bit values 1-d convolutions reach 0.03 to 0.2 of the rate, 3-d ones of 3 channels 0.012 to 0.018, others 0.12 to 0.38 (24
        # of KernelBench level 1 in bf16, 2026-11-28; kernelbench_bf16_direct.jsonl).
        window=0.7, half_axes=(0.2, 1.0, 0.43), groups=0.2,
        fp32_least=0.06, fp32_each=0.0165, fp32_most=0.48, spread=(0.3, 0.12, 0.075), any_call=0.4,
    ),
    tiles=TileFits(
        # Four convolutions in one stage took 0.82 to 0.87 of the time of three, one of 16 steps 1.13, 17 with higher tiles 1.02 to 1.48
        # (KernelBench level 2, 2026-11-27; raw/kernelbench/reductions.jsonl).
        low_rows=32, few_steps=9,
        # Ten convolutions took 0.88 to 1.02 of the time, four with more channels 1.9 to 2.4 (KernelBench level 2, 2026-11-27;
        # raw/kernelbench/registers.jsonl). High tiles of longer sums spill: three took 1.33 to 2.06 (level 1, 54 and 60; level 2, 90).
        few_channels=8,
        # As compiled for sm_90: low tiles need 122, the function that does one again 168 (level 2, 21).
        low_registers=128,
        # Products read shared memory, so threads with so many do not spill.
        third_registers=168,
        # As many filters as one instruction multiplies: with 32 it takes 1.1 times as long (level 2, 21). Parts of all weights, and a
        # tile's: 64 x 72 and 72 x 128 need 70 KB, and 112 in place of 72 what cards with 99 KB have. Only a depth of 72 is measured.
        once_filters=(33, 64), once_depth=(32, 112),
        # 150 for 64 sums (level 2, 85).
        once_sums=64, other_registers=100,
    ),
    # Causal attention of 4,096 keys, heads of 64 and 128, fp32 and fp16 (raw/settings/attention_blocks.jsonl).
    heads=HeadFits(wide=128, small=64),
    rows=RowFits(
        # Softmax of 4,096 rows of 32,768: 0.263 ms with whole rows, 0.316 ms with rows that four programs hold together.
        whole_over=2,
        # Group norm 5.52 ms instead of 5.98, L1 norm 6.74 instead of 8.20 (KernelBench level 1, 35 and 38).
        wider=2,
        # RMS norm 0.133 ms instead of 0.136, layer norm 0.133 instead of 0.135 (raw/settings/norm_blocks.jsonl).
        long=8192,
        # RMS norm over 64 channels: 3.68 ms instead of 4.90 (2026-11-26).
        apart=2,
        # Assumed: 2**16 elements, rows of 65,536, rows of 16,384 in 65,536 registers, and 16, 32 and 64 of the 60 MiB of L2.
        small=2**16, split=65536, on_chip=1 / 4, l2_kept=4 / 15, l2_cached=8 / 15, l2_lost=16 / 15,
    ),
    families=FamilyFits(
        step=1.5e-6,  # assumed
        # 16 instructions of 64 rows and depth 16 take 0.2 us, publishing a state 0.6 us: computed. Which slices are fastest is measured for
        # four tasks (benchmarks/results/chain.md).
        short_product=64 * 256,
        chain_ahead=0.55,  # products with long sums reach 0.5 to 0.56 (2026-11-24)
        chain_in_loop=0.25,
        chain_large=2.0**32,  # 64 million for each of 64 processors: assumed
        chain_half_rate=9.3e12,  # 8.9e12 to 9.6e12 by tiles of 128 x 128 with eight warps: 0.71 to 0.83 of cuBLAS (2026-11-28)
        chain_half_shallow_rate=4.6e12,  # 64 x 4096 x 4096 in 21.9 us: 3.2e12; 512 x 3072 x 768 in 11.9 us: 6.5e12 (2026-11-28)
        network_deep=0.75,  # AlexNet 0.72, VGG19 0.75, VGG16 0.79, RegNet 0.82
        network_products=0.38,  # 2026-11-24
        network_expected=0.5,  # assumed
        network_gathered=3e11 * 790 / 989,  # eight tasks: 1.4e11 to 4.2e11 of the data sheet's fp16 rate
        network_caches=5e12,  # assumed
    ),
)  # fmt: skip
"""Fitted on one H200 (torch 2.11, triton 3.6). Files are those of `benchmarks/results`."""

FITS: MappingProxyType[int, Fits] = MappingProxyType({90: HOPPER})
"""By compute capability, times ten."""


def choose_fits(hardware: Hardware) -> Fits:
    """The fits for a card: those of its kind with its own figures, or those of the rule for a kind that nobody measured."""
    known = FITS.get(hardware.capability)
    if known is not None:
        return _scale(known, hardware)
    fits, fitted = _scale(HOPPER, hardware), CARDS[HOPPER.fitted_on]
    return replace(
        fits,
        kind="by rule",
        products=_follow_balance(fits.products, fitted, hardware),
        tiles=replace(
            fits.tiles, low_rows=0, few_steps=0, few_channels=0, low_registers=0, third_registers=0, once_filters=(1, 0), once_sums=0,
        ),
        rows=_follow_memory(replace(fits.rows, wider=1, long=0, apart=1), fitted, hardware),
        families=_follow_clock(fits.families, fitted, hardware),
    )  # fmt: skip


def _scale(fits: Fits, hardware: Hardware) -> Fits:
    """The fits with absolute figures that follow from a card's own."""
    fitted = CARDS[fits.fitted_on]
    pace = (hardware.processors * hardware.clock_hz) / (fitted.processors * fitted.clock_hz)
    memory, clock = hardware.bandwidth / fitted.bandwidth, hardware.clock_hz / fitted.clock_hz
    products, families = fits.products, fits.families
    return replace(
        fits,
        products=replace(
            products, split_rate=products.split_rate * pace, split_few_rate=products.split_few_rate * pace,
            l2_rate=products.l2_rate * pace, half_l2_rate=products.half_l2_rate * pace, stored=products.stored / pace,
            joined=products.joined / pace, joined_apart=products.joined_apart / pace,
            scattered=products.scattered / memory, integers=(products.integers[0] / pace, products.integers[1] / pace),
        ),
        windows=replace(
            fits.windows, taps=fits.windows.taps * pace, inner_taps=fits.windows.inner_taps * pace,
            library=fits.windows.library * pace,
        ),
        families=replace(
            families, step=families.step / clock, chain_half_rate=families.chain_half_rate * pace,
            chain_half_shallow_rate=families.chain_half_shallow_rate * pace,
            network_gathered=families.network_gathered * pace, network_caches=families.network_caches * pace,
        ),
    )  # fmt: skip


def _balance(rate: float, fitted_rate: float, hardware: Hardware, fitted: Hardware) -> float:
    """Operations of tensor cores for each clock of a processor, over those of the fitted card."""
    return rate / (hardware.processors * hardware.clock_hz) / (fitted_rate / (fitted.processors * fitted.clock_hz))


def _reach(share: float, balance: float) -> float:
    """The share of tensor cores' rate where these are `balance` times as fast beside the threads."""
    return 1.0 / (1.0 + (1.0 / share - 1.0) * balance)


def _follow_balance(fits: ProductFits, fitted: Hardware, hardware: Hardware) -> ProductFits:
    half = _balance(hardware.fp16, fitted.fp16, hardware, fitted)
    tf32 = _balance(hardware.tf32, fitted.tf32, hardware, fitted)
    dense = hardware.fp16 / hardware.bandwidth / (fitted.fp16 / fitted.bandwidth)
    return replace(
        fits, ahead=_reach(fits.ahead, half), in_loop=_reach(fits.in_loop, half),
        matrix_tf32=_reach(fits.matrix_tf32, tf32), matrix_half=_reach(fits.matrix_half, half), matrix_described=0.0, window_described=0.0,
        matrix_split=0.0, gated=0.0, integers=(0.0, 0.0),
        window_tf32=_reach(fits.window_tf32, tf32), window_half=_reach(fits.window_half, half),
        window_flops=fits.window_flops * dense, matrix_flops=fits.matrix_flops * dense, filled_flops=fits.filled_flops * dense,
    )  # fmt: skip


def _follow_memory(fits: RowFits, fitted: Hardware, hardware: Hardware) -> RowFits:
    """Elements that take as long to read as on the fitted card: by the whole card, and by one of its processors."""
    memory, processors = hardware.bandwidth / fitted.bandwidth, hardware.processors / fitted.processors
    return replace(fits, small=int(fits.small * memory), split=int(fits.split * memory / processors))


def _follow_clock(fits: FamilyFits, fitted: Hardware, hardware: Hardware) -> FamilyFits:
    half = _balance(hardware.fp16, fitted.fp16, hardware, fitted)
    return replace(
        fits, short_product=int(fits.short_product * hardware.clock_hz / fitted.clock_hz), chain_ahead=_reach(fits.chain_ahead, half),
        chain_in_loop=_reach(fits.chain_in_loop, half), chain_large=fits.chain_large * hardware.processors / fitted.processors,
        network_products=_reach(fits.network_products, half),
        network_expected=_reach(fits.network_expected, half),
    )  # fmt: skip
