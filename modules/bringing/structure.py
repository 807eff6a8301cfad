"""Nested arguments and results of a module, taken apart into tensors and plain values. Imports torch."""
