"""One step of decoding and the loop: from a start to an end."""
