"""Small modules with products of matrices and convolutions of every kind: ragged sizes, several types, work on operands and results."""

from recipe_cases.regions import RegionCase

_CONV = "return torch.relu(self.c(x))"
PRODUCTS = [
    RegionCase("linear of three axes", "return F.gelu(self.l(x))*2", "torch.randn(5, 7, 40)", init="self.l=nn.Linear(40, 50)"),
    RegionCase(
        "linear with work on its input and a sum behind it",
        "y=self.l(torch.relu(x)); return (y*x[:, :30]).sum(1), y.t()+1",
        "torch.randn(33, 70)",
        init="self.l=nn.Linear(70, 30, bias=False)",
    ),
    RegionCase(
        "a batch of products",
        "return torch.bmm(x, y.transpose(1, 2))*0.5",
        "torch.randn(3, 20, 33), torch.randn(3, 35, 33)",
        arguments="x, y",
    ),
    RegionCase("products that broadcast", "return (x@y).abs()", "torch.randn(2, 1, 18, 20), torch.randn(3, 20, 17)", arguments="x, y"),
    RegionCase(
        "einsum with axes in another order",
        "return torch.einsum('bijl,lk->kbij', x, y)+1, torch.tanh(torch.einsum('bhic,bhjc->bihj', z, z))",
        "torch.randn(2, 3, 5, 18), torch.randn(18, 20), torch.randn(2, 2, 17, 9)",
        arguments="x, y, z",
    ),
    RegionCase(
        "sums of products",
        "return torch.addmm(b, x, y, beta=0.5, alpha=2)+1, torch.baddbmm(z, z, z.transpose(1, 2))*2",
        "torch.randn(17), torch.randn(20, 30), torch.randn(30, 17), torch.randn(2, 16, 16)",
        arguments="b, x, y, z",
    ),
    RegionCase(
        "two products and a residual",
        "h=torch.sigmoid(self.a(x)); return self.b(h)*h+x",
        "torch.randn(20, 24)",
        init="self.a, self.b=nn.Linear(24, 24), nn.Linear(24, 24)",
    ),
    RegionCase(
        "convolution along one axis", _CONV, "torch.randn(2, 5, 40)", init="self.c=nn.Conv1d(5, 7, 4, stride=3, padding=2, dilation=2)"
    ),
    RegionCase(
        "convolution with batch norm and a residual",
        "return torch.relu(self.n(self.c(x))+x)",
        "torch.randn(2, 36, 9, 11)",
        init="self.c, self.n=nn.Conv2d(36, 36, 3, padding=1), nn.BatchNorm2d(36)",
    ),
    RegionCase("groups of few channels", _CONV, "torch.randn(1, 16, 9, 19)", init="self.c=nn.Conv2d(16, 1024, 1, groups=2)"),
    RegionCase(
        "convolution in groups",
        _CONV,
        "torch.randn(2, 64, 9, 11)",
        init="self.c=nn.Conv2d(64, 6, (3, 2), stride=(2, 1), groups=2, bias=False)",
    ),
    RegionCase("convolution of equal size", _CONV, "torch.randn(2, 5, 9, 8)", init="self.c=nn.Conv2d(5, 3, 4, padding='same')"),
    RegionCase(
        "convolution of volumes, softmax and pool",
        "return F.max_pool3d(torch.softmax(self.c(x)*2, 1), 2)",
        "torch.randn(2, 3, 6, 7, 8)",
        init="self.c=nn.Conv3d(3, 6, 3)",
    ),
    RegionCase(
        "transposed convolution along one axis",
        _CONV,
        "torch.randn(2, 31, 15)",
        init="self.c=nn.ConvTranspose1d(31, 5, 5, stride=2, padding=1, dilation=2)",
    ),
    RegionCase(
        "transposed convolution",
        "return torch.tanh(self.c(x)-self.b)",
        "torch.randn(2, 66, 5, 6)",
        init="self.c=nn.ConvTranspose2d(66, 7, 3, stride=2, padding=1, output_padding=1); self.b=nn.Parameter(torch.randn(7, 1, 1))",
    ),
    RegionCase(
        "transposed convolution of ragged size",
        _CONV,
        "torch.randn(2, 4, 5, 6)",
        init="self.c=nn.ConvTranspose2d(4, 6, (3, 4), stride=(3, 2), padding=(0, 1), groups=2)",
    ),
    RegionCase(
        "transposed convolution with gaps", _CONV, "torch.randn(2, 3, 5, 6)",
        init="self.c=nn.ConvTranspose2d(3, 6, 4, stride=(4, 3), padding=1, dilation=(2, 2))",
    ),
    RegionCase(
        "transposed convolution without stride",
        _CONV,
        "torch.randn(2, 17, 5, 6)",
        init="self.c=nn.ConvTranspose2d(17, 6, 3, padding=2, dilation=2, bias=False)",
    ),
    RegionCase(
        "transposed convolution of volumes",
        "return self.c(x).clamp(min=-0.1)*2+1",
        "torch.randn(2, 3, 3, 4, 3)",
        init="self.c=nn.ConvTranspose3d(3, 16, 3, stride=2, padding=1, output_padding=1)",
    ),
    RegionCase(
        "bf16 products",
        "return F.silu(self.l(torch.sigmoid(x)))",
        "torch.randn(20, 40).bfloat16()",
        init="self.l=nn.Linear(40, 50).bfloat16()",
    ),
    RegionCase("fp16 convolution", _CONV, "torch.randn(2, 17, 9, 11).half()", init="self.c=nn.Conv2d(17, 6, 3, padding=1).half()"),
    RegionCase(
        "values that fp16 parts cannot hold",
        "return torch.relu(x@y)",
        "torch.randn(20, 40)*1e6, torch.randn(40, 18)*1e-6",
        arguments="x, y",
    ),
]
