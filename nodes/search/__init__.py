"""Searching a kernel's tuning space: who proposes configurations, and how races and budgets lead to the few that get full verdicts."""
