"""The work of the larger commands: bring a stack up, replay a trace, back up, diagnose and so on."""
