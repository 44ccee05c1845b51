"""Turns this process into a rank: enters its groups, takes its account and folder, runs its command.

`python -I -S enter.py DESCRIPTOR COMMAND …`; the descriptor is of a file with the JSON object {"groups": […],
"account": [uid, gid, [gid, …]], "folder": "…", "make": false, "reach": false, "environment": {…}}. It runs
between the agent and the job's command, so that no Python code runs in a fork of the agent. It uses the
standard library only. It may run as root, so the job's variables are not in its own environment, where the
dynamic linker would obey them. If the command cannot be started, the reason is the last line on standard
error, and the exit code is 127. With `reach` there is no command: it only enters the folder, after making it
with `make`; the exit code is the error number.
"""

import contextlib
import json
import os
import sys
import warnings  # noqa: F401 - `os.execvpe` imports it, which the job's account may not be allowed to read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

CANNOT_START = 127
"""exit code of a shell that cannot start a program"""
OOM_SCORE = "500"
"""high, so that the kernel kills jobs before agents when memory runs out"""


def main() -> None:
    with open(int(sys.argv[1])) as file:  # noqa: PTH123 - a descriptor
        plan = json.load(file)
    _become(plan)
    if plan["reach"]:
        _reach(plan)
    if plan["folder"]:
        os.chdir(plan["folder"])
    command = sys.argv[2:]
    os.execvpe(command[0], command, plan["environment"])  # noqa: S606 - it is the job's own command


def _become(plan: "dict[str, Any]") -> None:
    for path in plan["groups"]:
        with open(path, "w") as file:  # noqa: PTH123 - nothing is imported that need not be
            file.write("0")
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write(OOM_SCORE)
    if plan["account"]:
        uid, gid, groups = plan["account"]
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)


def _reach(plan: "dict[str, Any]") -> "NoReturn":
    try:
        if plan["make"]:
            os.makedirs(plan["folder"], exist_ok=True)  # noqa: PTH103 - as above
        os.chdir(plan["folder"])
    except OSError as error:
        os._exit(error.errno or CANNOT_START)
    os._exit(0)


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, IndexError) as error:
        why = getattr(error, "strerror", None) or str(error)
        what = os.fsdecode(getattr(error, "filename", None) or (sys.argv[2:] or ["an empty command"])[0])
        sys.stderr.write(f"hopyard: cannot be started: {what}: {why}\n")
        sys.stderr.flush()
        os._exit(CANNOT_START)
