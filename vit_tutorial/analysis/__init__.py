"""What a model does: where it looks (lesson 08), how its quality grows (14), what its patches know (lesson 16)."""
