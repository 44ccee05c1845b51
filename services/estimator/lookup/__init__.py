"""Questions to the estimator: columns of configurations in, estimates by layers of evidence out."""
