"""Mechanisms for answers that are given again every period, by permanent memos."""
