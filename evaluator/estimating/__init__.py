"""Device time of one launch from what compiling and counting say of it."""
