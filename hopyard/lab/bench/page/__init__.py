"""The page that admission serves, in a real browser: how soon it appears, and the cost of updates."""
