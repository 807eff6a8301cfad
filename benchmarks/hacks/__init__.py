"""The corpus of hacks, wrong kernels, races and right kernels, and the suite that judges it."""
