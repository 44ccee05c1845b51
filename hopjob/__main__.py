"""`python -m hopjob SCRIPT [ARGUMENT ...]` or `-m MODULE [ARGUMENT ...]`: runs a script and watches it.

A script that calls `attach` meets its peers and reports by itself. Any other script is rigid: it is measured
without its help. If it has several ranks, each starts once all are up, with the environment variables that
torch's own launcher would set.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # It was the folder of this file or the current one, whose files may be named like modules imported here.
    sys.path[0] = __file__.rpartition("/hopjob/")[0]

    from hopjob import launch

    launch.run(sys.argv[1:])
