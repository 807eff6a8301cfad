"""The report of a suite of tasks."""
