"""The plug-in that connects a training script with hopyard. It needs only the standard library and torch.

It runs in the job's own interpreter: Python 3.9 or later, torch 1.13 or later. It imports no other package of
hopyard, and no other package imports it: the agent finds it by its path.
"""

from hopjob.job import Job, attach

__all__ = ["Job", "attach"]
