"""`SCRIPT`: that it calls `attach` cannot be seen in this file."""

import os
import runpy

runpy.run_path(os.environ["SCRIPT"], run_name="__main__")
