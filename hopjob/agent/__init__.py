"""A rank's dealings with its agent: order, connection, rendezvous of the ranks, last message."""
