"""Reports of runs and experiments as HTML, Markdown, CSV and JSON."""
