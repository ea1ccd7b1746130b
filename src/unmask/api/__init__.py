"""What a user calls: `load`, `Model`, `Generation`."""
