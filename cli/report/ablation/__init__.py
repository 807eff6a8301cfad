"""The report of an ablation."""
