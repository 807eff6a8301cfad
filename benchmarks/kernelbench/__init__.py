"""How the judge does on real tasks: copies of references, large tensors, and what a verdict costs (README.md has the commands)."""
