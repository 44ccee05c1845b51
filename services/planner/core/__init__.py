"""The planner's decisions: when to plan, from which view, and what of a decision is published."""
