"""Asking a language model: requests, replies, retries, faults and what they cost."""
