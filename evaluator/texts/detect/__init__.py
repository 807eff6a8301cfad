"""What kind of kernel a text is, with the lines that show it."""
