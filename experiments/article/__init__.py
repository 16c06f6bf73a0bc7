"""The three parts of the article hklm grew from, each a binary that prints the article's numbers.

The article: "From PyTorch to JAX: towards neural net frameworks that purify stateful code",
sjmielke.com/jax-purify.htm.
"""
