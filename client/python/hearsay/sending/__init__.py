"""Talk to the server: seal reports into batches, fetch the plan, send, and wait."""
