"""What a kernel's text suggests before anything runs; advice is never a gate."""
