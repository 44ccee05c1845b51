"""What the terminal shows: tables, units, lines of progress."""
