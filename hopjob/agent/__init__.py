"""The agent, as a process of a job knows it: its order, the line to it, where ranks meet, last words."""
