"""How fast a candidate is: one call, a session, and which calls count."""
