"""What the processes of other operators, a shuffler and a helper, have in common."""
