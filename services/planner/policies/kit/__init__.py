"""Parts that several policies are made of: gangs, queues, rigid demands, linear programs."""
