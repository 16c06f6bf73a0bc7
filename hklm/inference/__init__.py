"""What one does with a model and its parameters: evaluate, score, generate."""
