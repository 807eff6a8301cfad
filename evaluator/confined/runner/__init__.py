"""The process that runs one candidate, or the baselines outside the sandbox."""
