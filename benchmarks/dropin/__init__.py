"""What a drop-in costs on top of its kernel."""
