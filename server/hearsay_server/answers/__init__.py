"""Answers to analysts: estimates, raw rows, exports, errors over repeated answers."""
