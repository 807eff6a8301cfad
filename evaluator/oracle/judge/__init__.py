"""One verdict: the steps, the facts, and what is hard to believe."""
