"""Trainings: the file that declares one, what it means, and its trial on one machine."""
