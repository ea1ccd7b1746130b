"""What CI cannot check because it has no GPU: bits of every kernel, graphs, golden values and times. See check.py."""
