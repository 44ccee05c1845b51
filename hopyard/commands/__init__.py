"""One small file per group of commands. Here is the wording of options; what they do is done elsewhere."""
