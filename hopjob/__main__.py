"""`python -m hopjob SCRIPT [ARGUMENT ...]` or `-m MODULE [ARGUMENT ...]`: a script, watched from outside.

A script that attaches itself does the rest. Any other is rigid: it is measured as it is, and of several ranks
it starts once all of them are up, with what torch's own launcher would have set.
"""

from __future__ import annotations

import sys

from hopjob import launch

if __name__ == "__main__":
    launch.run(sys.argv[1:])
