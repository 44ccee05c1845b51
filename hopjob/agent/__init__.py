"""The agent as a rank sees it: its order, the connection to it, the rendezvous of ranks, last messages."""
