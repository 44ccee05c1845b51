"""Trials in processes of their own, and their outcomes, kept on disk and found again."""
