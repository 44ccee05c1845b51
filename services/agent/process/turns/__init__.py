"""Turns of several jobs on one GPU: whose turn is next, and what happens when a worker keeps its turn."""
