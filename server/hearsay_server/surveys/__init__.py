"""From a survey's file to its frozen plan, and what both mean in words."""
