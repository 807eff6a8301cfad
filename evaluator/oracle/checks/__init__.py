"""Whether a candidate is right: inputs, float64 oracle and the rule of acceptance."""
