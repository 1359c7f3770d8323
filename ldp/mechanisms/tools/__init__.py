"""Computing tools of the mechanisms: bits, hash functions, finite fields, exact sampling."""
