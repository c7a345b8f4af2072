"""What a model does: where it looks (lesson 08), and how its quality grows with its size (lesson 14)."""
