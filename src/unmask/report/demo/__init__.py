"""The pages of `unmask demo`."""
