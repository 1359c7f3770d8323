"""Checks of guarantees and reports: audits, poisoning, suspicion, amplification by shuffling."""
