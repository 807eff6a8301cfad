"""`python -m tritonsmith.benchmarks.tuning --out DIR`: starts the study."""

import sys

from tritonsmith.benchmarks.tuning.study import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
