"""Times of the built-in author's kernels without the judge: a first look at hundreds of kernels in a few minutes of a card."""
