"""What tuning searches give on a card: untuned, each stage, tuned, and triton.autotune over the same space."""
