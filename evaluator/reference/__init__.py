"""A task's reference: built, run, traced and counted; run as a process it describes the task."""
