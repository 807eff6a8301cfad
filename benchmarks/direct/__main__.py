"""Starts the script: `python -m tritonsmith.benchmarks.direct`."""

import sys

from tritonsmith.benchmarks.direct.script import main

sys.exit(main())
