"""What a candidate's text says by itself: its syntax, its labels, advice about it, and the spaces that a search may vary."""
