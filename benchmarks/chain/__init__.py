"""Study of the dependent chain of a recurrent kernel: where a step's time goes, and what other exchanges would take."""
