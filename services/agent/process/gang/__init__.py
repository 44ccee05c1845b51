"""The gang of one placement on one node: pure, without a process."""
