"""The policies. Each is a deterministic function from a view of the cluster to a decision."""
