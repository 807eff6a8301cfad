"""The recipes of convolution networks: who computes the convolutions, with which settings, and what they should take.

Time is bound by the products of deep layers, by the images between shallow ones, and by the weights of large linear layers. Images of few
places are bound by launches and by programs that idle; there programs share the sums of a tile. A card needs tensor cores for 16-bit
operands and shared memory for `num_stages` tiles of both operands; `fit_card` checks that for every setting.

Sources: convolution as a product whose left matrix is never stored, Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning" (2014);
fp32 operands as two fp16 parts, Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores" (2022); sums of a tile shared
by programs, Osama et al., "Stream-K" (2023), here with parts of equal size; joined moments, Chan et al., "Updating Formulae and a Pairwise
Algorithm for Computing Sample Variances" (1979).
"""

from __future__ import annotations

from tritonsmith.author.cost import Way, time_launches, time_product
from tritonsmith.author.families.convnet.costs import predict_network
from tritonsmith.author.families.convnet.example import EXAMPLE
from tritonsmith.author.families.convnet.plan import NetworkPlan
from tritonsmith.author.families.convnet.reader import read_network
from tritonsmith.author.measured import Measured
from tritonsmith.author.plan import KernelPlan
from tritonsmith.author.recipe import Recipe, RecipeFamily, Settings
from tritonsmith.author.types import MATRICES
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Stage, Task, TaskFacts
from tritonsmith.prompts.analysis import Analysis, Category, Complexity, Promise
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.kinds import Family

_MORE_EXACT = {"fp16": "fp16x3", "tf32": "fp16x3", "fp16x3": "tf32x3", "tf32x3": "ieee"}
"""The next more exact way to multiply."""
_OPERAND_BYTES = {"fp16x3": 4, "fp16": 2, "as they are": 2}
"""Of one value in shared memory, in all its parts; 4 where it is fp32."""
_SUMS = {"fp16x3": 2}
"""fp32 sums of one value of a tile; 1 for the others, 3 for fp16x3 that carries the small products."""
_PRODUCTS = {"fp16x3": 3, "tf32x3": 6}
"""fp16 products of tensor cores that take as long as one product of a scheme."""
_FEW_LAUNCHES = 0.5
"""Share of the products' time that launches from Python may take before a CUDA graph replays them."""
_MOST_SUMS = 160
"""fp32 sums of one thread, which has 255 registers at most; the rest hold addresses."""


def _defaults(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings:
    """Tiles of 128 x 128 for two warpgroups. Classes TF32 and 16-bit get fp16 operands: the mantissa of TF32 at twice its rate."""
    assert isinstance(plan, NetworkPlan)
    scheme = "as they are" if plan.half else "fp16" if precision.allows_tf32 or precision is PrecisionClass.HALF else "fp16x3"
    settings: Settings = {
        "programs": hardware.processors, "block_m": 128, "block_n": 128, "block_k": 64, "num_warps": 8, "num_stages": 3,
        "scheme": scheme, "carried": False, "library": "none", "replayed": _is_bound_by_launches(plan, scheme),
    }  # fmt: skip
    for smaller in (
        {},
        {"num_stages": 2},
        {"num_stages": 2, "block_n": 64},
        {"num_stages": 2, "block_m": 64, "block_n": 64, "block_k": 32},
    ):
        if fit_card(plan, settings | smaller, hardware):
            return settings | smaller
    return settings


def _is_bound_by_launches(plan: NetworkPlan, scheme: str) -> bool:
    """Whether a CUDA graph, which a few launches replay, is worth the copies of the image and of the result around it."""
    flops, share = _PRODUCTS.get(scheme, 1) * plan.flops, plan.card.fits.families.network_expected
    return time_launches(len(plan.steps)) > _FEW_LAUNCHES * time_product(plan.card, flops, Way.HALF, share)


def _library_defaults(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings | None:
    """Images in fp32 between the library's calls; None where a kernel of this file has to measure every convolution's result."""
    assert isinstance(plan, NetworkPlan)
    if not any(plan.goes_to_library(step, "all") for step in plan.steps):
        return None
    scheme = "as they are" if plan.half else "tf32" if precision.allows_tf32 else "tf32x3"
    tile: Settings = {"block_m": 64, "block_n": 64, "block_k": 32, "num_warps": 4}
    return _defaults(plan, hardware, precision) | tile | {"scheme": scheme, "library": "all"}


def fit_card(plan: KernelPlan, settings: Settings, hardware: Hardware) -> bool:
    """Operand tiles of all stages within shared memory, sums within registers; `carried` only where that means something."""
    scheme = str(settings["scheme"])
    assert isinstance(plan, NetworkPlan)
    if settings["carried"] and scheme != "fp16x3":
        return False
    m, n, k = (int(settings[key]) for key in ("block_m", "block_n", "block_k"))
    shared = _OPERAND_BYTES.get(scheme, 4) * (m + n) * k * int(settings["num_stages"])
    sums = (3 if settings["carried"] else _SUMS.get(scheme, 1)) * m * n / (32 * int(settings["num_warps"]))
    return shared <= hardware.shared_per_block and sums <= _MOST_SUMS


def _sharpen(settings: Settings) -> Settings | None:
    scheme = _MORE_EXACT.get(str(settings["scheme"]))
    return settings | {"scheme": scheme, "carried": False, "block_n": min(64, int(settings["block_n"]))} if scheme else None


def _predict_kernels(plan: KernelPlan, found: Measured, brief: Brief) -> float:
    """Products at a share of the card's rate, or the weights' way through memory; launches one after the other."""
    assert isinstance(plan, NetworkPlan)
    return max(found.memory_ms, found.compute_ms / plan.card.fits.families.network_expected, time_launches(len(plan.steps)) * 1e3)


def _propose_kernels(plan: KernelPlan, found: Measured, brief: Brief) -> Analysis:
    assert isinstance(plan, NetworkPlan)
    return Analysis(
        bottleneck=f"{found.launches} launches pass every convolution's result through memory before scale, sum, activation and pooling: "
        f"{found.median_ms:.3g} ms, where the products take {found.compute_ms:.3g} ms at the card's rate and the weights "
        f"{found.memory_ms:.3g} ms",
        optimisation_method="compute each convolution as one product over its window, with all that follows it in the same kernel",
        modification_plan="Keep images channels-last and in the form in which the next product reads them. Compute the addresses of the "
        "window's taps instead of copying them. Apply batch norm as scale and shift, add the residual, apply the activation and take the "
        "largest of each pooling window before the one store. Share the sums of small images among programs.",
        category=Category.FUSION,
        implementation_complexity=Complexity.MEDIUM,
        promise=Promise(metric="launches_per_forward", before=found.launches, bound=len(plan.steps) + 1),
    )


_TUNABLES: dict[Stage, dict[str, tuple[int | str, ...]]] = {
    Stage.TUNE_GRID: {"programs": (1, 2, 4), "library": ("none", "small", "large", "all"), "replayed": (0, 1)},
    Stage.TUNE_BLOCK: {"block_m": (64, 128), "block_n": (64, 128, 256), "block_k": (32, 64, 128)},
    Stage.TUNE_MEMORY: {"num_warps": (4, 8), "num_stages": (2, 3, 4), "carried": (0, 1)},
}

LIBRARY = Recipe(
    name="convnet_library",
    level=0,
    template="families/convnet/network.py.j2",
    describes="leaves convolutions to the library, channels-last, and does scale, sum, activation and pooling behind each in one kernel",
    defaults=_library_defaults,
    tunables={},
    by_processor=("programs",),
    fits=fit_card,
    shrink={"num_stages": 1, "block_k": 16, "block_n": 16, "block_m": 16},
    sharpen=_sharpen,
)
PRODUCTS = Recipe(
    name="convnet_products",
    level=1,
    template="families/convnet/network.py.j2",
    describes="computes every convolution as one product over its window, with scale, sum, activation and pooling on the accumulator. "
    "Values of fp32 images must stay below 65,504, the end of fp16's range",
    defaults=_defaults,
    tunables=_TUNABLES,
    by_processor=("programs",),
    fits=fit_card,
    shrink={"num_stages": 1, "block_k": 16, "block_n": 16, "block_m": 16},
    sharpen=_sharpen,
    predict=_predict_kernels,
    propose=_propose_kernels,
    lesson="A convolution is one product: rows are places of the result, columns of the left matrix are taps and channels, and their "
    "addresses are computed. Images stay channels-last; what follows the convolution happens before the one store. Few places: programs "
    "share the sum of a tile, and the last one adds the parts in their order.",
)
def _predict(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> float | None:
    assert isinstance(plan, NetworkPlan)
    return predict_network(plan, precision, bool(_defaults(plan, hardware, precision)["replayed"]))


def _covers(plan: KernelPlan, task: Task, facts: TaskFacts) -> bool:
    """Images of one size in any number, and any number of classes."""
    assert isinstance(plan, NetworkPlan)
    return any(spec is not None and spec.shape[1:] == plan.input_shape for spec in facts.inputs)


CONVNET = RecipeFamily(
    name="convnet",
    writes=f"networks of `nn.Conv2d` ({', '.join(MATRICES)}) with any stride, padding, dilation and groups. Next to it stand "
    "`nn.BatchNorm2d`, elementwise functions, sums of two branches, max and average pooling, `flatten` and `nn.Linear`. In training mode a "
    "batch norm takes the batch's statistics and must follow a convolution",
    read=read_network,
    covers=_covers,
    recipes=(LIBRARY, PRODUCTS),
    example=EXAMPLE,
    kind=Family.CONVOLUTION,
    updates=True,
    predict=_predict,
)
