"""What a task's process reads besides the task file, so that an answer counts for what was judged. Loads no torch."""
