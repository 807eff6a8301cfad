"""What a person sees in a terminal: the picture of a run, progress, tables and the answer."""
