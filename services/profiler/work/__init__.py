"""The profiler's outside work: fits of time modules and of loading times."""
