"""Libraries behind HTTP. Runs in the peers' environments: imports nothing of the rest of the house."""
