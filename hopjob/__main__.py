"""`python -m hopjob SCRIPT [ARGUMENT ...]` or `-m MODULE [ARGUMENT ...]`: runs a script and watches it.

A script that calls `attach` meets its peers and reports by itself. Any other script is rigid: it is measured
without its help. If it has several ranks, each starts once all are up, with the environment variables that
torch's own launcher would set.
"""

from __future__ import annotations

import sys

from hopjob import launch

if __name__ == "__main__":
    launch.run(sys.argv[1:])
