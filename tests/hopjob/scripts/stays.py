"""A script that trains nothing and stays, whoever asks it to stop, unless OBEYS."""

import os
import signal
import time

if os.environ["OBEYS"] == "0":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("stays", flush=True)
while True:
    time.sleep(1)
