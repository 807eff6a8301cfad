"""Recipes of convolution networks: every convolution is one product over its window, with all that follows it in the same kernel."""
