"""What changes the model: positions (lesson 11), stems (12), training without labels (13), parts of after 2020 (15)."""
