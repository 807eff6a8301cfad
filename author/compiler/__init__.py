"""Recipes for any traced forward: it is cut into regions, each one kernel; what no region covers stays a PyTorch call."""
