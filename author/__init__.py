"""The built-in author: recipes that need no model, and the analyses that choose among them."""
