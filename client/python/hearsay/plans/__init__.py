"""Plans of surveys as values: mechanisms, periods, memos, and presence bits on the wire."""
