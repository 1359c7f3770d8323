"""What all mechanisms rest on: exact integers, coins, channels, tallies, estimates, policies."""
