"""The monitor: declares nodes lost and jobs ended, answers questions, and keeps the archive."""
