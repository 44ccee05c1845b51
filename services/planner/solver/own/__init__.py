"""Our own back end: prices and a relaxation for the bound, dives for the plan, then branch and bound."""
