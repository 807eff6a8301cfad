"""Reports of runs and experiments as HTML, Markdown, CSV and JSON."""

import logging

# where it cannot write to the home folder it says so on stderr at its import; charts need nothing from there
logging.getLogger("matplotlib").setLevel(logging.ERROR)
