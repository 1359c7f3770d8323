"""Talk to the server: pack reports into batches, fetch the plan, send, and wait."""
