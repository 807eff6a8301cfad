"""Questions about a task that another process answers, so that the caller loads no torch."""
