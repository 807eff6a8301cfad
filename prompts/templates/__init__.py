"""What a model reads: templates, rules by operator family, hints for errors and worked examples."""
