"""The agents of a stack as allocations of a Slurm cluster: one job a node, the stack is a tenant."""
