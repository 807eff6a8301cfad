"""Records that the schema of verdicts is made of."""
