"""The compiler's intermediate form: values of a forward, their indices and sizes, and the code of kernels; one printer makes text."""
