"""Floor 6: task files, suites and measured results."""
