"""Records sealed to the collector by HPKE, of one size each, so that a shuffler can mix them."""
