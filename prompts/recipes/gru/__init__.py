"""Recipes of one-directional GRU stacks, with or without a linear layer behind them."""
