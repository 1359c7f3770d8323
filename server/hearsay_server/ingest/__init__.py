"""What devices sent: whether a batch may be taken, and its tallies."""
