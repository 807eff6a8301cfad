"""Recipes of elementwise chains, with or without a linear layer in front of them."""
