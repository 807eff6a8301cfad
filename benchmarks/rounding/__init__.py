"""Twelve tasks that rounding decides, each with right and wrong kernels, and the study that judges them."""
