"""Text to numbers: corpora, tokenizers, id files and windows. Knows nothing of models."""
