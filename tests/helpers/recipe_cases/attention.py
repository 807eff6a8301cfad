"""Small modules with attention: every kind of mask, ragged sizes, other lengths of keys, shared heads, several types."""

from recipe_cases.regions import RegionCase

_HAND = (
    "q, k, v=self.l(x).split(40, 2); q, k, v=(t.view(2, 70, 4, 10).transpose(1, 2) for t in (q, k, v)); "
    "w=(q@k.transpose(-2, -1))*0.3; w=w.masked_fill(self.m[:, :, :70, :70]==0, float('-inf')); w=self.d(F.softmax(w, dim=-1)); "
    "return (w@v).transpose(1, 2).contiguous().view(2, 70, 40)"
)
_BUFFER = "self.l=nn.Linear(40, 120); self.d=nn.Dropout(0.1); self.register_buffer('m', torch.tril(torch.ones(80, 80)).view(1, 1, 80, 80))"
_QKV = "torch.randn(2, 3, 40, 24), torch.randn(2, 3, 70, 24), torch.randn(2, 3, 70, 20)"
_SAME = ", ".join(["torch.randn(2, 3, 70, 32)"] * 3)

ATTENTION = [
    RegionCase("causal heads of a packed product", _HAND, "torch.randn(2, 70, 40)", init=_BUFFER),
    RegionCase("attention by name", "return F.scaled_dot_product_attention(q, k, v)", _QKV, arguments="q, k, v"),
    RegionCase("causal by name", "return F.scaled_dot_product_attention(q, k, v, is_causal=True)", _SAME, arguments="q, k, v"),
    RegionCase(
        "mask of truths with an empty row",
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.5).transpose(1, 2).reshape(2, 40, 60)",
        f"{_QKV}, (torch.rand(40, 70)>0.7)&(torch.arange(40)!=5)[:, None]",
        arguments="q, k, v, m",
    ),
    RegionCase(
        "mask of numbers for each head",
        "return torch.relu(F.scaled_dot_product_attention(q, k, v, attn_mask=m))",
        f"{_QKV}, torch.randn(2, 3, 40, 70)",
        arguments="q, k, v, m",
    ),
    RegionCase(
        "heads that share keys",
        "return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)",
        "torch.randn(1, 6, 40, 16), torch.randn(1, 2, 40, 16), torch.randn(1, 2, 40, 16)",
        arguments="q, k, v",
    ),
    RegionCase(
        "scaled before, and a mask for each batch",
        "w=torch.matmul(q/5, k.transpose(2, 3)); w=torch.where(m, w, -1e9); return torch.matmul(torch.softmax(w, -1), v)",
        f"{_QKV}, torch.rand(2, 1, 1, 70)>0.3",
        arguments="q, k, v, m",
    ),
    RegionCase(
        "attention with ReLU",
        "w=(q@k.mT)*0.2; w=w.masked_fill(self.m==0, float('-inf')); return F.relu(w)@v",
        ", ".join(["torch.randn(2, 4, 70, 16)"] * 3),
        init="self.register_buffer('m', torch.tril(torch.ones(70, 70)))",
        arguments="q, k, v",
    ),
    RegionCase(
        "batched products with a bias of each head",
        "w=torch.bmm(q, k.transpose(1, 2)).view(2, 3, 40, 70)*0.2+b[:, None].expand(3, 40, 70)*2; "
        "return torch.bmm(w.softmax(-1).view(6, 40, 70), v)",
        "torch.randn(6, 40, 24), torch.randn(6, 70, 24), torch.randn(6, 70, 20), torch.randn(3, 70)",
        arguments="q, k, v, b",
    ),
    RegionCase(
        "equations",
        "w=torch.einsum('bqhd,bkhd->bhqk', q, k)/4; return torch.einsum('bhqk,bkhd->bqhd', w.softmax(-1), v)",
        "torch.randn(2, 20, 3, 16), torch.randn(2, 50, 3, 16), torch.randn(2, 50, 3, 16)",
        arguments="q, k, v",
    ),
    RegionCase(
        "attention of normalized heads",
        "w=F.normalize(q, dim=-1)@F.normalize(k, dim=-1).transpose(-2, -1)*torch.clamp(self.s, max=4.6).exp(); "
        "w=w+(16*torch.sigmoid(self.t[self.i.view(-1)].view(40, 70, 3).permute(2, 0, 1))).unsqueeze(0); return F.softmax(w, -1)@v",
        _QKV,
        init="self.s=nn.Parameter(torch.ones(3, 1, 1)); self.t=nn.Parameter(torch.randn(11, 3)); "
        "self.register_buffer('i', torch.arange(2800).view(40, 70)%11)",
        arguments="q, k, v",
    ),
    RegionCase("a window of keys",
               "m=torch.triu(torch.ones(90, 90), 3).bool()|torch.tril(torch.ones(90, 90), -20).bool(); "
               "w=(q@k.mT*0.2).masked_fill(m, float('-inf')); return w.softmax(-1)@v",
               ", ".join(["torch.randn(2, 4, 90, 16)"] * 3), arguments="q, k, v"),
    RegionCase("more queries than keys", "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
               "torch.randn(1, 2, 70, 16), torch.randn(1, 2, 30, 16), torch.randn(1, 2, 30, 16)", arguments="q, k, v"),
    RegionCase("heads of 192", "return F.scaled_dot_product_attention(q, k, v)", ", ".join(["torch.randn(1, 2, 33, 192)"] * 3),
               arguments="q, k, v"),
    RegionCase("heads of 300", "return F.scaled_dot_product_attention(q, k, v)", ", ".join(["torch.randn(1, 2, 20, 300)"] * 3),
               arguments="q, k, v"),
    RegionCase("bf16 attention", "return F.scaled_dot_product_attention(q, k*1.5, v, is_causal=True)",
               ", ".join(["torch.randn(2, 3, 70, 32).bfloat16()"] * 3), arguments="q, k, v"),
    RegionCase("one query of heads that share keys", "return F.scaled_dot_product_attention(q, k, v, attn_mask=m, enable_gqa=True)",
               "torch.randn(2, 8, 1, 32).bfloat16(), torch.randn(2, 2, 300, 32).bfloat16(), torch.randn(2, 2, 300, 32).bfloat16(), "
               "(torch.arange(300)<torch.tensor([200, 90])[:, None])[:, None, None]", arguments="q, k, v, m"),
    RegionCase("fp16 attention by hand", "return ((q@k.transpose(-1, -2)).float()*0.2).softmax(-1).to(v.dtype)@v",
               ", ".join(["torch.randn(2, 3, 40, 16).half()"] * 3), arguments="q, k, v"),
    RegionCase("a module of heads", "return self.n(self.a(x, x, x)[0]+x)", "torch.randn(30, 2, 32)",
               init="self.a=nn.MultiheadAttention(32, 4); self.n=nn.LayerNorm(32)"),
    RegionCase("a module with other keys and masks", "return self.a(x, y, y, key_padding_mask=p, attn_mask=m)",
               "torch.randn(2, 20, 32), torch.randn(2, 30, 32), torch.rand(2, 30)>0.8, torch.rand(20, 30)>0.9",
               init="self.a=nn.MultiheadAttention(32, 4, batch_first=True)", arguments="x, y, p, m"),
    RegionCase("an encoder's layer", "return self.e(x)", "torch.randn(2, 20, 32)",
               init="self.e=nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)"),
]  # fmt: skip
