"""Functions of a library as examples: a line of text each, made into a function of its own.

Text, since a static checker reads source: what it reads and what is run come from the same line.
A line may only name what `NAMES` makes.
"""

import ast
import builtins
from typing import NamedTuple

import jax
import jax.numpy as jnp

# What a line may name besides its library; made when asked for, since importing makes no array.
NAMES = {
    "x": lambda: jnp.float32([0.5, -1.25, 2.0, 0.125]),
    "y": lambda: jnp.float32([0.25, 1.5, -2.0, 0.75]),
    "p": lambda: jnp.float32([0.1, 0.2, 0.3, 0.4]),
    "q": lambda: jnp.float32([0.4, 0.3, 0.2, 0.1]),
    "signs": lambda: jnp.float32([1, -1, -1, 1]),
    "zeros_and_ones": lambda: jnp.float32([1, 0, 0, 1]),
    "scalar": lambda: jnp.float32(1.5),
    "count": lambda: jnp.int32(3),
    "logits": lambda: jnp.float32([[1, 2, 0], [0.5, -1, 3], [-2, 0, 1], [0, 1, 0]]),
    "labels": lambda: jnp.int32([1, 2, 0, 1]),
    "one_hot": lambda: jax.nn.one_hot(jnp.int32([1, 2, 0, 1]), 3),
    "params": lambda: {"w": jnp.float32([1, -2, 3]), "b": jnp.float32(0.5)},
    "grads": lambda: {"w": jnp.float32([0.5, 0.25, -1]), "b": jnp.float32(2)},
    "key": lambda: jax.random.PRNGKey(7),
}


class Call(NamedTuple):
  """A function of a library with what it is called with.

  Attributes:
    function: its dotted name.
    arguments: text between the parentheses.
    then: text after them, such as the call of a schedule on a count.
  """

  function: str
  arguments: str
  then: str = ""

  @property
  def name(self) -> str:
    """The name of the function that is made of it."""
    return self.function.replace(".", "_")

  @property
  def parameters(self) -> tuple[str, ...]:
    """Those of `NAMES` that it uses, in their order there."""
    used = {node.id for node in ast.walk(ast.parse(self.expression)) if isinstance(node, ast.Name)}
    return tuple(name for name in NAMES if name in used)

  @property
  def expression(self) -> str:
    return f"{self.function}({self.arguments}){self.then}"

  def source(self) -> str:
    """A function that does nothing but this call."""
    return f"def {self.name}({', '.join(self.parameters)}):\n  return {self.expression}\n"


def module_source(imports: str, calls: tuple[Call, ...]) -> str:
  """The text of a module with a function for each call."""
  return "\n\n".join([imports + "\n", *(call.source() for call in calls)])


def functions(module: str, imports: str, calls: tuple[Call, ...]) -> dict[str, object]:
  """The functions of that text, by name.

  Args:
    module: the name of the module they are to be of.
    imports: its import statements.
    calls: one for each function.
  """
  namespace = {"__name__": module, "__builtins__": builtins}
  exec(compile(module_source(imports, calls), f"<{module}>", "exec"), namespace)
  return {call.name: namespace[call.name] for call in calls}


def arguments(call: Call) -> tuple:
  """New arguments for the call's function."""
  return tuple(NAMES[name]() for name in call.parameters)
