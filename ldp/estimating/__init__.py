"""From tallies to answers: pooled levels, likelihoods, distributions, strings."""
