"""The monitor: node leases, ends of jobs, metrics, and answers to questions about the present."""
