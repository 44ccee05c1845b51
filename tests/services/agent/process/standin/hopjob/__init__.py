"""Stands in for the plug-in, where there is no torch."""
