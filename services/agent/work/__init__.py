"""The agent's work outside its core: node, claim, heartbeat, and the runner of its node's workers."""
