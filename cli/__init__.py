"""Floor 6: the `tritonsmith` command."""
