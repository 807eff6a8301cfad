"""Who writes kernels: a language model, tables of texts, and what earlier runs remember."""
