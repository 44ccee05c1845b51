"""Becomes a rank: into its groups, under its account, into its folder, then its command.

`python -I -S enter.py {"groups": […], "account": [uid, gid, [gid, …]], "folder": "…"} COMMAND …`. It runs
between the agent and the job's command, so that nothing of Python runs between a fork of the agent and its
program; the standard library is all it needs. What makes the command impossible is the last line on the
standard error, and the exit code is 127.
"""

import contextlib
import json
import os
import sys
import warnings  # noqa: F401 - `os.execvp` imports it, which the job's account may not be allowed to read

CANNOT_START = 127
"""as a shell says it"""
OOM_SCORE = "500"
"""the kernel takes jobs before agents where the machine has no memory left"""


def main() -> None:
    plan = json.loads(sys.argv[1])
    command = sys.argv[2:]
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
    if plan["folder"]:
        os.chdir(plan["folder"])
    os.execvp(command[0], command)  # noqa: S606 - it is the job's own command


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, IndexError) as error:
        why = getattr(error, "strerror", None) or str(error)
        what = getattr(error, "filename", None) or (sys.argv[2:] or ["an empty command"])[0]
        sys.stderr.write(f"hopyard: cannot be started: {what}: {why}\n")
        sys.stderr.flush()
        os._exit(CANNOT_START)
