"""Jobs that take turns on one GPU: the order of turns, and what happens when a worker keeps its turn."""
