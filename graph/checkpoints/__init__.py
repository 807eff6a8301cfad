"""The newest state of each line of work, kept and read back."""
