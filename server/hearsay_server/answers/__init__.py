"""What analysts ask for: estimates, raw rows, exports, errors over repeated answers."""
