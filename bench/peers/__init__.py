"""The servers that ours is compared with: one file for each, which finds and starts it."""
