"""Task files: how they are read, and which sizes they declare."""
