"""What drives a core with asyncio, live or on virtual time."""
