"""What a model is told: templates, rules by operator family, hints for errors and worked examples."""
