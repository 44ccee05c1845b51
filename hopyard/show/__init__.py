"""What stands on the screen: tables, units, lines of progress."""
