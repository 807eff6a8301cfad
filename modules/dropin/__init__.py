"""The winner of a run as a drop-in for the module that went in."""
