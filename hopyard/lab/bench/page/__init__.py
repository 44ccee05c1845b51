"""The page that admission serves, in a real browser: how soon it is there, and what it takes to follow."""
