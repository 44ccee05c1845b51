"""What several policies share: placing gangs, serving a queue, rigid demands, linear programs."""
