"""What PyTorch's operators do with values: make them, pass them on, or decide by them; by their names in `torch.ops.aten`."""

from __future__ import annotations

FACTORIES = frozenset(
    """
    arange bernoulli empty empty_like empty_strided eye full full_like lift_fresh linspace new_empty new_empty_strided new_full
    new_ones new_zeros normal ones ones_like rand rand_like randint randint_like randn randn_like randperm scalar_tensor uniform
    zero zeros zeros_like
    """.split()
)
"""These make values out of none."""
PASSING = frozenset(
    """
    _local_scalar_dense _unique2 _unsafe_index _unsafe_index_put abs adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    alias amax amin aminmax argsort as_strided_copy bitwise_and bitwise_not bitwise_or bitwise_xor cat ceil channel_shuffle clamp
    clamp_max clamp_min clone complex constant_pad_nd copy copysign cummax cummin detach diagonal_copy diagonal_scatter embedding
    expand_copy fill flip floor fmax fmin fractional_max_pool2d fractional_max_pool3d gather hardshrink hardtanh heaviside im2col
    imag index index_copy index_fill index_put index_select kthvalue lift_fresh_copy masked_fill masked_scatter masked_select max
    max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d maximum median min minimum mode msort nan_to_num
    nanmedian neg nonzero permute_copy pixel_shuffle pixel_unshuffle positive put real reflection_pad1d reflection_pad2d
    reflection_pad3d relu relu6 repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d roll rot90 round
    scatter select_copy select_scatter set_data sgn sign slice_copy slice_scatter sort split_copy stack take threshold topk
    transpose_copy tril triu trunc unbind_copy unfold_copy unique unique_consecutive unique_dim upsample_nearest1d
    upsample_nearest2d upsample_nearest3d view_copy where
    """.split()
)
"""These give values that they were given, or round to a number by a rule: nothing is left to how a kernel computes."""
DECIDING = frozenset(
    """
    _local_scalar_dense _unique2 argmax argmin argsort bucketize ceil count_nonzero cummax cummin eq equal
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask floor floor_divide fmod frac ge gt
    hardshrink heaviside histc histogram is_nonzero isclose kthvalue le logical_and logical_not logical_or logical_xor lt
    masked_select max median min mode nanmedian ne nonzero quantize_per_channel quantize_per_tensor remainder round searchsorted
    sgn sign signbit sort threshold topk trunc unique unique_consecutive unique_dim
    """.split()
)
"""These give another result, by a jump, where a value moves by its last place."""
