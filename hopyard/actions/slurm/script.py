"""The batch script of one agent. Pure.

Slurm runs it on a node that the job has for itself. It keeps an agent there, says until when, submits its
own successor before the end, and hands an order to end on to the agent, which stops its workers with their
checkpoints. It holds no secret: what the agent needs to know is in a file that only its owner can read.
"""

import shlex
from pathlib import Path
from string import Template

from schemas.base import Message

NOTICE = 1.5
"""Slurm reminds the script this many times `leave_before_end_s` before the end, or up to a minute earlier"""
PAUSE_S = 15
"""before a command of Slurm is tried again, at most"""
TRIES, PATIENCE_S = 5, 20
"""how often squeue is asked for the end of a job that begins, and how long it may take each time"""
SCRIPT, SETTINGS, WANTED = "agent.sh", "settings.yaml", "wanted"
"""files in the folder; the last one exists as long as agents are wanted"""
UNFIT = ("SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_ERROR", "SBATCH_WAIT")
"""variables of sbatch that no option overrides, and that an agent's job cannot do with"""


class Allocation(Message, frozen=True, kw_only=True):
    """What to ask of Slurm for an agent; an empty field is left to Slurm."""

    name: str
    partition: str
    time: str = ""
    account: str = ""
    gres: str = ""
    constraint: str = ""


def batch_script(
    allocation: Allocation, folder: Path, *, python: str, leave_s: float, commands: str = "/usr/bin"
) -> str:
    """`python`: the interpreter that hopyard is installed for, by a path that every node has.

    `commands`: the folder of Slurm's commands, for jobs that do not get the user's PATH (`SBATCH_EXPORT`).
    """
    return _SCRIPT.substitute(
        directives="\n".join(f"{_DIRECTIVE}{option}" for option in _options(allocation, folder, leave_s)),
        folder=shlex.quote(str(folder)),
        python=shlex.quote(python),
        commands=shlex.quote(commands),
        unfit=" ".join(UNFIT),
        early=max(round((NOTICE - 1) * leave_s), 1),
        rest=max(round(leave_s / 4), 1),
        tries=TRIES,
        patience=PATIENCE_S,
        pause=max(min(round(leave_s / 8), PAUSE_S), 1),
    )


def options(script: str) -> list[str]:
    """What the script's directives ask for, for sbatch's command line: variables override directives."""
    directives = (line for line in script.splitlines() if line.startswith(_DIRECTIVE))
    return [word for line in directives for word in shlex.split(line.removeprefix(_DIRECTIVE))]


def _options(allocation: Allocation, folder: Path, leave_s: float) -> list[str]:
    """Of a job with a whole node, so that Slurm gives its GPUs to no other job."""
    chosen = {
        "job-name": allocation.name,
        "partition": allocation.partition,
        "time": allocation.time,
        "account": allocation.account,
        "gres": allocation.gres,
        "constraint": allocation.constraint,
        "output": f"{folder}/agent-%j.log",
        "signal": f"B:USR1@{round(NOTICE * leave_s)}",
    }
    given = [f"--{name}={shlex.quote(value)}" for name, value in chosen.items() if value]
    return [*given, "--nodes=1 --ntasks=1 --exclusive --mem=0", "--requeue --open-mode=append"]


_DIRECTIVE = "#SBATCH "
_SCRIPT = Template(
    """\
#!/bin/bash
# The agent of one node. Written by `hopyard slurm up`.
$directives

unset $unfit "$${!SQUEUE_@}"
export PATH=$$PATH:$commands
folder=$folder
script=$$folder/agent.sh
agent= leaving= successor= last=0

# In what a signal starts, `return` by itself returns the status from before the signal.
waiting_successor() { # of this job before it was requeued, or of an sbatch whose answer was lost
  local jobs id after command
  jobs=$$(squeue --noheader --user="$$UID" --format='%i|%E|%o') || return 1
  while IFS='|' read -r id after command; do
    [[ $$command == "$$script" && $$after =~ :$$SLURM_JOB_ID([^0-9]|$$) ]] && echo "$$id" && return 0
  done <<<"$$jobs"
  return 0
}
submit_successor() {
  local options next
  while [[ -e $$folder/wanted ]]; do
    options=$$(sed -n 's/^#SBATCH //p' "$$script") && eval "options=($$options)" &&
      options+=(--dependency="afterany:$$SLURM_JOB_ID") && next=$$(waiting_successor) &&
      next=$${next:-$$(sbatch --parsable "$${options[@]}" "$$script")} &&
      echo "job $$next goes on after this one" && return 0
    (($$(date +%s) + $pause > last)) && return 1
    sleep $pause
  done
}
near_the_end() {
  [[ $$successor ]] && return
  ((last)) || last=$$(($$(date +%s) + $early)) # Slurm had not said when: what leaves then has time to
  submit_successor & # as often as it takes, while the agent works
  successor=$$!
  rest=$$((last - $$(date +%s)))
  sleep $$((rest > 0 ? rest : 0)) && kill -TERM $$$$ &
}
leave() {
  leaving=1
  [[ $$agent ]] && kill -TERM "$$agent" 2>/dev/null
}
trap near_the_end USR1
trap leave TERM INT

until= tries=0
while [[ ! $$until && ! $$leaving ]] && ((tries++ < $tries)); do
  ((tries == 1)) || sleep $pause
  until=$$(SLURM_TIME_FORMAT=%s timeout $patience squeue --noheader --jobs="$$SLURM_JOB_ID" --format=%e)
done
[[ $$until ]] || echo 'Slurm does not say when this job ends: the agent works until Slurm signals the end' >&2
[[ $$until =~ ^[0-9]+$$ ]] || until=0 # no limit, or none that is known
((until)) && last=$$((until - $rest)) # to end in order, before the time-out
node=$$(tr 'A-Z._' 'a-z--' <<<"$$SLURMD_NODENAME") # as hopyard names nodes
export HOPYARD_SETTINGS=$$folder/settings.yaml HOPYARD_NODE=$$node HOPYARD_NODE_UNTIL=$$until

failures=0
while [[ ! $$leaving ]]; do
  began=$$SECONDS
  # Trainers that find Slurm's variables take themselves for tasks of Slurm, with its ranks.
  (unset "$${!SLURM_@}" "$${!SBATCH_@}" && exec $python -P -m hopyard.cli agent) &
  agent=$$!
  while kill -0 "$$agent" 2>/dev/null; do wait "$$agent"; done # a signal to this shell ends a wait
  wait "$$agent"
  code=$$?
  agent=
  [[ $$leaving ]] && break
  ((failures = SECONDS - began < 60 ? failures + 1 : 1))
  echo "the agent ended with $$code" >&2
  ((failures < 5)) || exit 1
  sleep $$((2 * failures)) &
  wait $$!
done
if [[ $$successor ]]; then
  kill "$$successor" 2>/dev/null
  wait "$$successor" || {
    echo 'no job goes on after this one, unless Slurm requeues it;' \\
      '`hopyard slurm up` submits what is missing' >&2
    exit 1
  }
fi
"""
)
