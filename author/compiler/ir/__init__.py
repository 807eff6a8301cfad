"""A forward as values: what each tensor is made of, and where each of its elements comes from."""
