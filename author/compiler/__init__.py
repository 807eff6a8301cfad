"""The compiler: from a traced forward to Triton kernels and their launches."""
