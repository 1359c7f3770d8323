"""The conformance vectors, one module for each kind; `generate.py` writes them."""
