"""Assertions of chex that hold. All of them are pure: they look, and return None."""

from experiments.purity.calls import Call

IMPORTS = "import chex\nimport jax.numpy as jnp"

CALLS = (
    Call("chex.assert_shape", "logits, (4, 3)"),
    Call("chex.assert_rank", "[x, logits], [1, 2]"),
    Call("chex.assert_type", "x, jnp.float32"),
    Call("chex.assert_scalar", "1.5"),
    Call("chex.assert_scalar_in", "0.5, 0.0, 1.0"),
    Call("chex.assert_scalar_positive", "2.5"),
    Call("chex.assert_equal", "3, 3"),
    Call("chex.assert_equal_shape", "[x, y, p]"),
    Call("chex.assert_equal_rank", "[x, y]"),
    Call("chex.assert_equal_size", "[x, y]"),
    Call("chex.assert_axis_dimension", "logits, 1, 3"),
    Call("chex.assert_is_divisible", "12, 4"),
    Call("chex.assert_tree_all_finite", "params"),
    Call("chex.assert_tree_no_nones", "params"),
    Call("chex.assert_trees_all_close", "params, params"),
    Call("chex.assert_trees_all_equal_shapes", "params, grads"),
    Call("chex.assert_trees_all_equal_structs", "params, grads"),
)
