"""Modules of whole numbers against PyTorch, to the bit; a script under TRITON_INTERPRET=1 that prints {case: outcome} of the cases named.

Without a name it runs all of them.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipe_cases.regions import RegionCase
from tritonsmith.author.book import match
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.confined.interpreter import schedule
from tritonsmith.evaluator.confined.runner.candidate import import_candidate
from tritonsmith.evaluator.reference.module import flatten, load_reference
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task

X = "torch.randn(6, 40)"
ENDS = "torch.tensor([-2**{0}, 2**{0} - 1, -1, 0, 1, -2**{0} + 1, 2**{0} - 5]).{1}().repeat(6, 1)"
DIVIDED = (
    "return i * 1000003 % 1000000007, i // 1000, i % 97, torch.div(i, 7, rounding_mode='trunc'), torch.fmod(i, 13), i // -1000, i % -97, "
    "i + i, i * i, i % 2147483647, i // 2147483647, i % 1500000000, torch.div(i, 3, rounding_mode='floor')"
)
CASES = [
    RegionCase("hash of a place", "p = torch.arange(x.shape[0]); return x * ((p * 100003) % 1009)[:, None]", "torch.randn(64, 4)"),
    RegionCase("place of an extreme", "i = x.argmax(1); return i * 1000000000, (i * 1000000000) // 7 + 5, x.max(1)[1] ** 2 * 100", X),
    RegionCase(
        "large numbers beside places",
        "p = torch.arange(x.shape[1]); return torch.where(p < 3000000000, x, -x), p + 3000000000, p.clamp(min=5000000000), "
        "torch.where(x > 0, p, 3000000000), p.masked_fill(x[0] > 0, -5000000000), F.pad(p, (2, 3), value=3000000000)",
        X,
    ),
    RegionCase(
        "sums of places",
        "p = torch.arange(x.shape[1]); q = p * 100000000; return q.sum(), (q + x.argmax(1)[:, None]).sum(1), q.cumsum(0), q.max(), "
        "p.max() * 3000000000, p[:20].cumprod(0) + 1, (p + 1)[:20].prod()",
        X,
    ),
    RegionCase("long sums of places",
               "p = torch.arange(x.shape[1]); return p.sum(), p.cumsum(0), x.argmin(1) + p.sum()", "torch.randn(3, 70000)"),
    RegionCase(
        "bits of places",
        "p = torch.arange(x.shape[1]); return 1 << p, p << 40, (p << 28) >> 3, ~(p * 100000000), (p * 2654435761) % 4294967296, "
        "(p ^ (p << 16)) * 73244475, (p << 33) & 0xffffffffffff",
        X,
    ),
    RegionCase("signs of places", "p = torch.arange(40) - 20; q = p * 1000000000; return -q, q.abs(), q.sign(), q > 0, q == x.argmax()", X),
    RegionCase("ends of int32", DIVIDED + ", i.sum(), i.cumsum(1), i.prod(1)", ENDS.format(31, "int"), arguments="i"),
    RegionCase("ends of int64", DIVIDED, ENDS.format(63, "long"), arguments="i"),
    RegionCase("ends of int8", "return i.sum(), i.cumsum(1), i * i, i % 7, i // 7, i + 100", ENDS.format(7, "to(torch.int8).clone"),
               arguments="i"),
    RegionCase("numbers of 32 bits wrap", "p = torch.arange(40, dtype=torch.int32) + x.argmax().int() * 0; return p * 100000007, "
               "(p * 100000007) % 1009, p.long() * 100000007, (p.long() * 100000000).int(), (p * 100000000).to(torch.int16)", X),
    RegionCase("places found by counting", "return torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])) * 2000000000, "
               "(x > 0).sum(1) * 1000000000, torch.count_nonzero(x) * 1000000000, x.cummax(1)[1] * 1000000000", X),
    RegionCase("one hot", "return F.one_hot(i, 7) * 3000000000, F.one_hot(i, 7).sum(0) * 1000000000", "torch.randint(0, 7, (9,))",
               arguments="i"),
    RegionCase("sorted places", "return x.argsort(dim=1, stable=True) * 1000000000, x.sort(dim=1, stable=True)[1] + 4000000000", X),
    RegionCase("lookups at computed places", "i = x.argmax(1); p = torch.arange(40); return t[i * 3 % 40], t[(i * 100000007) % 40], "
               "x.gather(1, ((p * 100000007) % 40).expand(6, 40)), self.e((p * 2654435761) % 50)", f"{X}, torch.randn(40)",
               arguments="x, t", init="self.e = nn.Embedding(50, 6)"),
    RegionCase("sums by computed place", "p = torch.arange(40); i = (p * 1000000007) % 6; return torch.zeros(6).index_add(0, i, x[0]), "
               "torch.zeros(6, dtype=torch.long).scatter_add(0, i, p * 1000000000), torch.bincount(i, minlength=6) * 1000000000", X),
    RegionCase("places joined", "p = torch.arange(20); return torch.cat([p, p + 3000000000]), torch.cat([p, i[0]]) * 100000000, "
               "torch.stack([p, p * 2]) * 200000000, torch.arange(3000000000, 3000000040) + i[0, 0]", "torch.randint(0, 9, (2, 5))",
               arguments="i"),
    RegionCase("places in order", "return torch.arange(0, 20000000000, 500000000) + x.argmax(), "
               "torch.arange(40, 0, -1) * 100000000 - x.argmax()",
               X),
    RegionCase("places of a pool", "v, i = F.max_pool2d(x[None, None], 2, return_indices=True); return i * 100000000", X),
    RegionCase("places as fractions",
               "p = torch.arange(40) * 1000000000; return p.float() * x, p * 0.5 + x, p / 7 - x, (x * 1e9).long() * 10", X),
]  # fmt: skip


def main(names: list[str]) -> None:
    """Run the cases."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = {case.name: ", ".join(try_case(case, Path(folder))) for case in CASES if not names or case.name in names}
    json.dump(outcomes, sys.stdout)


def try_case(case: RegionCase, folder: Path) -> Iterator[str]:
    """`right`, or what differs; a case has no PyTorch call that does its work."""
    task = Task(name="case", path="case.py", source=case.source())
    found = match(task, probe(task)[0], CARDS["h200"])
    assert found is not None, case.name
    recipe = found.recipes[0]
    settings = recipe.defaults(found.plan, CARDS["h200"], task.precision)
    assert settings is not None
    path = folder / f"case_{len([*folder.iterdir()])}.py"
    path.write_text(recipe.render(found.plan, settings | {"replayed": False}))
    reference = load_reference(task)
    with torch.no_grad(), schedule.session("round_robin", 0, detect_races=False):
        wanted = reference.module.Model().eval()
        model = import_candidate(path).ModelNew()
        model.load_state_dict(wanted.state_dict())
        tensors = reference.module.get_inputs()
        pairs = zip(flatten(model(*tensors)), flatten(wanted(*tensors)), strict=True)
        wrong = [number for number, (got, expected) in enumerate(pairs) if not is_same(got, expected)]
    yield f"results {wrong} differ" if wrong else "right"


def is_same(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two results agree: whole numbers to the bit."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    return torch.allclose(got, expected, rtol=1e-5) if got.is_floating_point() else torch.equal(got, expected)


if __name__ == "__main__":
    main(sys.argv[1:])
