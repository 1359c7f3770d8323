"""What several mechanisms compute with: bits, hash functions, finite fields, exact sampling."""
