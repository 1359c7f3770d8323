"""Federated training: splits, local steps, rules that aggregate updates, and its privacy."""
