"""Estimates compared with the measured runs of the repository."""
