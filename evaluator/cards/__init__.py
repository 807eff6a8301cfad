"""What cards can do: their figures, the cost of a launch, estimates and floors of times."""
