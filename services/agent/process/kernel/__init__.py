"""What the kernel knows of processes: who they are, how they begin, how they are found and ended."""
