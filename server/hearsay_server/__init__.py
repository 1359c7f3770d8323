"""The aggregation server: stores reports, debiases, answers."""
