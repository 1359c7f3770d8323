"""The device's file: its tables, transactions, log, and anchors that reveal a restored copy."""
