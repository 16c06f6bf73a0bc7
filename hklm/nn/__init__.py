"""What a model is made of: cells, stacks, tables, dropout. Knows nothing of text or training."""
