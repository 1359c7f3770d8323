"""Intake of the batches of devices: checks, judgement and tallies."""
