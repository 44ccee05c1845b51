"""The planner's decisions: when to plan, from which view, and which plan to publish."""
