"""Record answers: accounts, terms and consent, randomisation, and the queue of reports."""
