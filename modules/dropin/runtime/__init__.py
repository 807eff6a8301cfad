"""What runs in the user's program. It needs torch alone: `save` copies these files into a package of their own."""
