"""What a study says, in words."""
