"""The process that does a forward again without the candidate's host code."""
