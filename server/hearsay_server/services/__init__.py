"""The three services, each a thin layer over the store and the mathematics."""
