"""What each precision class admits: products as a kernel may write them, judged by the evaluator's own rule."""
