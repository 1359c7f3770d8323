"""Before a survey: which mechanism, which split of epsilon, how many people."""
