"""The parts of a job's state between two updates: checkpoints, samples, random numbers, learning rates."""
