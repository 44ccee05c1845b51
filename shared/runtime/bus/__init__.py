"""What services speak over: the contract, NATS JetStream, and memory for tests and simulations."""
