"""Names of the files by which a process under compute-sanitizer is told what to run."""

SOURCE = "candidate.py"
"""The candidate's text; it is complete when the request is there."""
REQUEST = "request.pkl"
"""Arguments of ModelNew and of its forward, as compilers read them."""
