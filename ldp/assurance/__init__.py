"""Does it hold: audits, poisoned reports, suspicion, amplification by shuffling."""
