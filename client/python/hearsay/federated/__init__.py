"""Taking part in a federated training: what is declared, updates on the wire, and the device."""
