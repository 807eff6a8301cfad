"""The name `tritonsmith` itself: its version. The packages beside this folder are its parts."""

__version__ = "0.1.0"
