"""The DuckDB file behind the estimates: observations, executions, and pages of them for other stacks."""
