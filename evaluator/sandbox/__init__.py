"""Starts, confines, attacks and kills processes that run untrusted code."""
