"""What lies in the folder of a run."""
