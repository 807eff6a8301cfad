"""Inductor's own Triton text for a task, as one file that needs nothing of Inductor."""
