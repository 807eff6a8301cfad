"""What asks: the evaluator of this machine, its questions, compilations, audits and the sharing of cards. It loads no torch."""
