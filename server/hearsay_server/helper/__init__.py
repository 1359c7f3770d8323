"""The second of two servers: it holds a share of each record, and tells sums of many alone."""
