"""The process that compiles what a forward would launch."""
