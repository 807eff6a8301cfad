"""Writes products.json: the author's default kernels of 16-bit products for each shape, by form (no card needed). Run from a worktree."""
import hashlib, json, sys
from pathlib import Path
sys.path.insert(0, "tests/helpers")
from recipe_cases.reading import describe_case
from recipe_cases.regions import RegionCase
from tritonsmith.author.book import match
from tritonsmith.author.cards.model import model_card
from tritonsmith.author.compiler import plan as plans
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.cards.cards import CARDS

OUT = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "products.json")
saved = plans.prefers_call, plans.leaves_all_to_library
CARD = CARDS["h200"]
SHAPES = [(4096, 4096, 4096), (8192, 4096, 1024), (2048, 11008, 4096), (64, 4096, 4096), (512, 3072, 768)]  # M, N, K
KINDS = {
    "plain": ("return self.l(x)", "x", "self.l = nn.Linear({k}, {n}, bias=False).bfloat16()"),
    "fused": ("return F.gelu(self.l(x), approximate='tanh') + y", "x, y", "self.l = nn.Linear({k}, {n}).bfloat16()"),
    "gate": ("return F.silu(self.g(x)) * self.u(x)", "x",
             "self.g = nn.Linear({k}, {n}, bias=False).bfloat16(); self.u = nn.Linear({k}, {n}, bias=False).bfloat16()"),
}
rows = []
for m, n, k in SHAPES:
    for kind, (forward, arguments, init) in KINDS.items():
        inputs = f"torch.randn({m}, {k}, dtype=torch.bfloat16)" + (f", torch.randn({m}, {n}, dtype=torch.bfloat16)" if kind == "fused" else "")
        task, facts = describe_case(RegionCase("product", forward, inputs, arguments=arguments, init=init.format(k=k, n=n)))
        seen = {}

        def add(label, text, settings):
            sha = hashlib.sha256(text.encode()).hexdigest()
            if sha in seen:
                seen[sha]["variant"] += f", {label}"
                return
            form = "descriptors" if "make_tensor_descriptor" in text else "pointers" if "tl.dot" in text else "library"
            calls = text.count("F.linear(")
            seen[sha] = {"shape": [m, n, k], "dtype": "bfloat16", "kind": kind, "variant": label, "form": form + f"+{calls} calls" * bool(calls), "text": text}
            rows.append(seen[sha])

        found = match(task, facts, CARD)
        recipe = found.recipes[-1]
        defaults = recipe.defaults(found.plan, CARD, task.precision)
        add(f"chosen ({recipe.name})", recipe.render(found.plan, defaults | ({"replayed": False} if "replayed" in defaults else {})), defaults)
        plans.prefers_call, plans.leaves_all_to_library = (lambda region, precision: False), (lambda *given: False)
        plan, recipe = REGIONS.read(task, facts, model_card(CARD)), REGIONS.recipes[0]
        plain = recipe.defaults(plan, CARD, plan.precision) | {"replayed": False}
        for form in ("descriptors", "pointers"):
            add(f"all own, {form}", recipe.render(plan, plain | {"form": form}), plain)
        if m >= 2048:
            add("all own, descriptors 128x128x64 4 warps", recipe.render(plan, plain | {"block_n": 128, "product_warps": 4}), plain)
        plans.prefers_call, plans.leaves_all_to_library = saved
json.dump(rows, open(OUT, "w"))
for row in rows:
    print(row["shape"], row["kind"], row["variant"], row["form"])
print(len(rows))
