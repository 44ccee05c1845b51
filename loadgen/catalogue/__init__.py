"""What is publicly known of models, data sets, GPUs and servers, and what follows by arithmetic."""
