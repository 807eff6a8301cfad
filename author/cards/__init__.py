"""Cards as the author sees them: their figures, and what was measured of kernels on each kind."""
