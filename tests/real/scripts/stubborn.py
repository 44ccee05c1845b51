"""A script that ignores SIGTERM, and has a child in a session of its own that does the same."""

import os
import signal
import subprocess
import sys
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "child"], start_new_session=True)
print("here", os.getpid(), flush=True)
while True:
    time.sleep(0.5)
