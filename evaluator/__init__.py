"""Floor 1: tasks, candidates, verdicts, and the processes that measure them; knows no model and no graph."""
