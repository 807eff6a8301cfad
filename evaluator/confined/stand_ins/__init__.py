"""What takes the place of a card where there is none."""
