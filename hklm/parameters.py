"""Names, shapes and dtypes of a model's parameters: what every file of weights is held against.

A parameter's name is `module/name`, such as `lstm_0/w_ih`; what is said of it here is all that a
reader of weights needs to know of the model.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from hklm.errors import InputError
from hklm.model import LanguageModel


def shapes(lm: LanguageModel) -> dict[str, dict[str, jax.ShapeDtypeStruct]]:
  """What `lm.init` returns, without its numbers."""
  return jax.eval_shape(lm.init, jax.random.key(0))


def described(lm: LanguageModel) -> dict[str, jax.ShapeDtypeStruct]:
  """The shape and dtype of each parameter, by its name, in the order of the names.

  >>> from hklm import ModelConfig, language_model
  >>> lm = language_model(ModelConfig(vocab_size=5, embedding_size=3, hidden_size=4))
  >>> {name: its.shape for name, its in described(lm).items()}
  {'embedding/table': (5, 3), 'head/b': (5,), 'head/w': (5, 4), 'lstm_0/b': (16,), \
'lstm_0/w_hh': (16, 4), 'lstm_0/w_ih': (16, 3)}
  """
  return flat(shapes(lm))


def flat(params: Mapping) -> dict:
  """Parameters by their names, in the order of the names.

  Args:
    params: as `lm.init` returns them.

  >>> flat({"head": {"w": 1, "b": 2}})
  {'head/b': 2, 'head/w': 1}
  """
  return dict(sorted((f"{module}/{name}", leaf) for module, its in params.items()
                     for name, leaf in its.items()))


def nested(tensors: Mapping, lm: LanguageModel, source: str = "parameters") -> dict:
  """Parameters as `lm` takes them, from tensors by name: the way back from `flat`.

  Args:
    tensors: arrays by name.
    lm: the model that is to have them.
    source: where they come from, for messages.

  Returns:
    Arrays of JAX.

  Raises:
    InputError: one is missing, too many, of another shape or dtype, or not finite (named).

  >>> from hklm import ModelConfig, language_model
  >>> lm = language_model(ModelConfig(vocab_size=5, embedding_size=0, hidden_size=4))
  >>> tensors = {name: jnp.zeros(its.shape) for name, its in described(lm).items()}
  >>> sorted(nested(tensors, lm))
  ['head', 'lstm_0']
  >>> nested(tensors | {"head/b": jnp.zeros(4)}, lm)
  Traceback (most recent call last):
  hklm.errors.InputError: parameters: tensor head/b: found float32[4], needed float32[5]
  """
  check(tensors, lm, source)
  return {module: {name: jnp.array(tensors[f"{module}/{name}"]) for name in its}
          for module, its in shapes(lm).items()}


def check(tensors: Mapping, lm: LanguageModel, source: str = "parameters"):
  """Refuses tensors that are not a model's parameters.

  Args:
    tensors: arrays by name.
    lm: the model.
    source: where they come from, for messages.

  Raises:
    InputError: one is missing, too many, of another shape or dtype, or not finite (named).

  >>> from hklm import ModelConfig, language_model
  >>> lm = language_model(ModelConfig(vocab_size=5, embedding_size=0, hidden_size=4))
  >>> check({}, lm)
  Traceback (most recent call last):
  hklm.errors.InputError: parameters: tensor head/b: found nothing, needed float32[5]
  """
  needed = described(lm)
  for name in sorted(set(tensors) | set(needed)):
    found, its = _spelled(tensors.get(name)), _spelled(needed.get(name))
    if found != its:
      raise InputError(f"{source}: tensor {name}: found {found}, needed {its}")
  check_finite(tensors, source)


def check_finite(tensors: Mapping, source: str = "parameters"):
  """Refuses tensors that are not finite.

  Args:
    tensors: arrays by name.
    source: where they come from, for the message.

  Raises:
    InputError: names the first.

  >>> check_finite({"head/b": jnp.array([0.0, jnp.inf])})
  Traceback (most recent call last):
  hklm.errors.InputError: parameters: tensor head/b is not finite; needed: finite numbers
  """
  for name, its in tensors.items():
    if not jnp.isfinite(its).all():
      raise InputError(f"{source}: tensor {name} is not finite; needed: finite numbers")


def _spelled(leaf) -> str:
  """Such as `float32[5, 4]`."""
  return "nothing" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"
