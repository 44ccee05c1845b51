"""The HTTP API: requests to questions, answers and the stream of facts to responses."""
