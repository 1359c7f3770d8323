"""`hearsay demo`: a survey played through, and how close its results came to the truth."""
