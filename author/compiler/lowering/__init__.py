"""From the nodes of a traced forward to values: one file for each kind of operation."""
