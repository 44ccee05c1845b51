"""The agent's work outside its core: its node, claim, heartbeats, jobs' output, and the emulated runner."""
