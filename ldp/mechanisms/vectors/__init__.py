"""Vectors of a bounded norm, such as updates of a model: for trainings, not for surveys."""
