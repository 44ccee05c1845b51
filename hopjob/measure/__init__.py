"""Measures the parts of iterations: in profile runs, in elastic training, and in rigid scripts."""
