"""How a sample's gradient is clipped: policies, adaptive norms, schedules."""
