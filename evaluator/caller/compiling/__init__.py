"""Compiles candidates while others are measured; run as a process it is the trusted compiler."""
