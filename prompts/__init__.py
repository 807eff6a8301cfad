"""Floor 2: what an author is asked and what the built-in author writes; knows no model client and no state."""
