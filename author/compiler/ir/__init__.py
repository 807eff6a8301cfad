"""The intermediate form of code: records, templates that make them, and the printer that makes text."""
