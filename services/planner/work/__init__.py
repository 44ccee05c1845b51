"""The planner's outside work: policies in their process, estimates, leadership."""
