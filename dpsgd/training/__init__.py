"""The engine: sampling, validation, steps, optimizers, several processes."""
