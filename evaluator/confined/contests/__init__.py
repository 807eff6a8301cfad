"""Ways to write a region, timed beside each other on the card."""
