"""Modules as people have them: blocks and small nets of libraries and of common practice, at sizes that people use."""
