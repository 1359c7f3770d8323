"""The server's storage: tables, group commit, tallies, tokens, retention, backups."""
