"""How well do checkers of purity check? A catalogue of functions, and a comparison.

`compare` is the binary; `catalogue` has the functions.
"""
