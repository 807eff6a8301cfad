"""The trusted side, which holds seeds, reference, clock and verdict; run as a process it is the oracle."""
