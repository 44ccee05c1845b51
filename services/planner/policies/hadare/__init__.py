"""HadarE (Hadar's second part, arXiv 2503.10918): a job trains as copies on several nodes at once."""
