"""The shuffler: sealed records are held, mixed and handed on, by another operator's process."""
