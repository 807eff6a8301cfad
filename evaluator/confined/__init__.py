"""Programs that run candidate code; none of them knows the oracle."""
