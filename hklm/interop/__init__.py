"""Weights from other programs, and for them."""
