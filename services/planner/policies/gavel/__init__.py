"""Gavel (OSDI '20): shares of time by linear programs, then rounds by priority."""
