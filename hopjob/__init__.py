"""The plug-in of a training script: connects it with hopyard. Needs the standard library and torch alone.

It runs in the job's own interpreter: Python 3.9 or later, torch 1.13 or later. Nothing of hopyard's is
imported here, and nothing of hopyard's imports this: the agent finds it by its path.
"""

from hopjob.job import Job, attach

__all__ = ["Job", "attach"]
