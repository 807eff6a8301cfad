"""Trusted child processes: life line, folder, environment and JSON lines."""
