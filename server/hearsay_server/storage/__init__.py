"""What is kept: tables, group commit, tallies, tokens, retention, backups."""
