"""Node leases, ends of jobs, figures, and the answers to what users ask about the present."""
