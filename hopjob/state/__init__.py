"""What a job is between two updates, in parts: checkpoints, samples, random numbers, learning rates."""
