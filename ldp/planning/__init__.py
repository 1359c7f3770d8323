"""Survey planning: choice of mechanism, split of epsilon, number of reports."""
