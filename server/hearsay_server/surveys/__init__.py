"""Surveys: from the file to the frozen plan, and explanations of both in words."""
