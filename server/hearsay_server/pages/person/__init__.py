"""The page of the person who is asked: what leaves a device, and what the crowd says."""
