"""Sums over two servers: what a device adds and splits, and what the noise of all promises."""
