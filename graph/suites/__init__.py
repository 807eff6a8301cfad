"""Many tasks in one process: the plan, the runs side by side, and a row about how each of them ended."""
