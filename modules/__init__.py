"""Live modules: brought in as task files, and handed back as drop-ins. Loads torch, in the user's own process."""
