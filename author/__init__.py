"""The built-in author: kernels for a traced module, without a language model."""
