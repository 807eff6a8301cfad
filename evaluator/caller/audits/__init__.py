"""What further examinations do to a verdict."""
