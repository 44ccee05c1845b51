"""What the larger commands do: bring a stack up, show it, replay a trace, diagnose."""
