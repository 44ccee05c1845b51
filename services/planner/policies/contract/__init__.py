"""What policies get and return: views, configurations, estimates, options, decisions."""
