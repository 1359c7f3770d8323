"""What devices reported as training data: rows, likelihoods, losses, labels, guarantees."""
