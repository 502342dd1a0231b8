"""`python -m pydispatch`: demo, bench, ops, backends, explain, profile, stubs, doctor."""

import sys

from pydispatch.cli.main import run_process

if __name__ == "__main__":
    sys.exit(run_process())
