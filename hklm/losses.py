"""What a model is charged for a token."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Loss(NamedTuple):
  """Unreduced losses, each `[T, B]`.

  Attributes:
    nats: `-log p(target)`.
    penalty: what regularisation adds for training; 0 for a plain model.
  """

  nats: jax.Array
  penalty: jax.Array


def token_nats(logits: jax.Array, targets: jax.Array) -> jax.Array:
  """`-log softmax(logits)[target]`, in nats.

  Args:
    logits: `[..., V]`.
    targets: ids `[...]`; an id of V or more gives NaN (ids are checked on the host).

  Returns:
    `[...]`, in float32 or wider: sums of bfloat16 losses would lose most of their digits.

  >>> token_nats(jnp.zeros([2, 4]), jnp.array([0, 3])).tolist()  # log 4
  [1.3862943649291992, 1.3862943649291992]
  """
  logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
  chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1, mode="fill")[..., 0]
  return jax.nn.logsumexp(logits, axis=-1) - chosen
