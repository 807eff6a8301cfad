"""Triton's interpreter, made concurrent and watched for races."""
