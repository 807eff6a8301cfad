"""What can be tuned in a kernel's text: the space of a search, read by the syntax tree and written back as plain constants."""
