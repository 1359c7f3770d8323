"""Per-sample gradient clipping: policies, adaptive norms, schedules."""
