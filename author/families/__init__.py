"""Families of hand-made recipes for one kind of module each; all other modules go to the compiler."""
