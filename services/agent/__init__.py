"""On every node: starts and stops jobs, checkpoints them, reports how they do."""
