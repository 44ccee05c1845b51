"""Measures what iterations are made of: in a profile run, between two synchronisations, in a rigid script."""
