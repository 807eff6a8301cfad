"""A live module, its weights and its inputs, written down as a task file in KernelBench's format."""
