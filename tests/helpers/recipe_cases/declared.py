"""Small modules that declare further sizes: one forward for all, several, a rule for a span, kernels that take sizes."""

from dataclasses import dataclass

from recipe_cases.regions import RegionCase


@dataclass(frozen=True)
class SizedCase(RegionCase):
    """A module of sizes R and N. `constructor` is an argument of the module, which gets the size of that name in capitals."""

    shapes: str = "[]"
    sizes: str = "R, N = 4, 8"
    constructor: str = ""

    def source(self) -> str:
        """The task."""
        text = super().source().replace("def __init__(self)", f"def __init__(self{', ' * bool(self.constructor)}{self.constructor})")
        return f"{self.sizes}\nSHAPES = {self.shapes}\n{text.replace('return []', f'return [{self.constructor.upper()}]')}"


BLOCK = (
    "h=self.n(x); q,k,v=self.qkv(h).view(R, N, 3, 4, 16).permute(2,0,3,1,4); y=F.scaled_dot_product_attention(q,k,v)"
    ".transpose(1,2).reshape(R,N,64); x=x+self.o(y); return x+self.d(F.gelu(self.u(self.n2(x))))"
)
DECLARED = [
    SizedCase("sizes of a norm", "return torch.softmax(self.n(x), 1)", "torch.randn(R, N, 12)", "self.n=nn.LayerNorm(12)",
              shapes="[{'N': 7}, {'N': 33, 'R': 2}]"),
    SizedCase("a span of rows", "return torch.softmax(x*2, -1)", "torch.randn(R, N)", shapes="[{'N': (3, 300), 'R': (1, 9)}]"),
    SizedCase("sizes of an attention", "return F.scaled_dot_product_attention(x, y, y)+x",
              "torch.randn(2, 3, R, 16), torch.randn(2, 3, N, 16)", arguments="x, y", shapes="[{'R': 5}, {'N': 9}, {'R': 60, 'N': 11}]"),
    SizedCase("sizes of images", "y=F.relu(self.a(x)); y=F.avg_pool2d(self.b(y),2); return y.mean((2,3)).softmax(-1)",
              "torch.randn(R, 3, N, N+2)", "self.a=nn.Conv2d(3,8,3,padding=1); self.b=nn.Conv2d(8,8,3,stride=2)",
              shapes="[{'N': 48}, {'N': 21, 'R': 3}]", sizes="R, N = 2, 32"),
    SizedCase("sizes of products", "return torch.relu(x @ y) * 2, (x.transpose(1, 2) @ x).sum(-1)",
              "torch.randn(R, 3*N, 40), torch.randn(R, 40, N+1)", arguments="x, y", shapes="[{'N': 16}, {'N': 130, 'R': 3}]",
              sizes="R, N = 2, 32"),
    SizedCase("widths of two layers", "return torch.softmax(self.b(torch.relu(self.a(x))), -1)", "torch.randn(R, 3, N)",
              "self.a=nn.Linear(n, 64); self.b=nn.Linear(64, n)", shapes="[{'N': 48}, {'N': 96, 'R': 9}]", constructor="n"),
    SizedCase("long and short rows", "return F.layer_norm(x, (N,)) + x.softmax(-1)", "torch.randn(R, N)",
              shapes="[{'N': 1000}, {'N': 70000, 'R': 2}, {'N': 300000}]", sizes="R, N = 4, 4096"),
    SizedCase("lengths of a block", BLOCK, "torch.randn(R, N, 64)", "self.n=nn.LayerNorm(64); self.n2=nn.LayerNorm(64); "
              "self.qkv=nn.Linear(64,192); self.o=nn.Linear(64,64); self.u=nn.Linear(64,256); self.d=nn.Linear(256,64)",
              shapes="[{'N': 48}, {'N': 100, 'R': 3}, {'N': 7, 'R': 1}]", sizes="R, N = 2, 32"),
    SizedCase("parts of rows", "a,b=x.chunk(2,1); return torch.cat([a*2,b.softmax(1),x],1), torch.einsum('bnk,bmk->bnm',x,x).tril()",
              "torch.randn(R, N, 20)", shapes="[{'N': 48}, {'N': 100, 'R': 3}]", sizes="R, N = 2, 32"),
]  # fmt: skip
