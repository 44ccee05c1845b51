"""A module that takes a minute to be imported."""

import time

time.sleep(60.0)
