"""Jobs and when they come: drawn from a mix, or read from a public trace."""
