"""One evaluator for many runs: fair turns, cards side by side, and answers that are kept. It loads no torch."""
