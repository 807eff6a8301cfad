"""From regions to the text of a module."""
