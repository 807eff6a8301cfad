"""Experiments with policies: tasks x policies x repeats, their statistics, and what the figures may be called."""
