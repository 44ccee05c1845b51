"""The policies and what they agree to: a deterministic function of a view to a decision."""
