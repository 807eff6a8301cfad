"""The oracle's grip on the processes that it asks."""
