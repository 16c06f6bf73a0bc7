"""What every config refuses: other types, numbers out of range, unknown names."""

import typing

from hklm.errors import InputError

LARGEST_FLOAT32 = float.fromhex("0x1.fffffep127")
Sizes = tuple[int, ...]  # the one kind of field that is not a plain value


def check_types(config):
  """Refuses a value of the wrong type, so that a config is what it says it is."""
  for name, kind in typing.get_type_hints(type(config)).items():
    value = getattr(config, name)
    if type(value) is int and abs(value) >= 2**33:  # beyond any size, count or seed
      raise InputError(f"{type(config).__name__}.{name}: found {str(value)[:20]}..., needed a "
                       "number below 2**33")
    if kind is float and type(value) is int:
      object.__setattr__(config, name, float(value))  # 1 and 1.0 must hash and print alike
    elif kind == Sizes:
      if type(value) is not tuple or any(type(size) is not int for size in value):
        raise InputError(f"{type(config).__name__}.{name}: found {value!r}, needed whole numbers")
    elif type(value) is not kind:
      raise InputError(f"{type(config).__name__}.{name}: found {value!r}, needed {kind.__name__}")


def sizes(config, least: int, *names: str):
  """Refuses fields with a size below `least`, or too large to index an array."""
  for name in names:
    for size in getattr(config, name):
      if not least <= size < 2**31:
        raise InputError(f"--{name}: {size} is out of range; needed: {least} or more, below 2**31")


def at_least(config, least: float, *names: str):
  """Refuses fields below `least`, or too large to index an array."""
  for name in names:
    if not least <= getattr(config, name) < 2**31:  # arrays are indexed, and updates counted, so
      raise InputError(f"--{name}={getattr(config, name)} is out of range; needed: {least} or "
                       "more, below 2**31")


def finite(config, *names: str):
  """Refuses fields that are no finite float32."""
  for name in names:
    if not abs(getattr(config, name)) <= LARGEST_FLOAT32:
      raise InputError(f"--{name}={getattr(config, name)} is not a finite float32 number")


def rates(config, *names: str):
  """Refuses fields outside [0, 1)."""
  for name in names:
    if not 0 <= getattr(config, name) < 1:
      raise InputError(f"--{name}={getattr(config, name)} is out of range; needed: at least 0 and "
                       "below 1")


def one_of(config, **choices: tuple):
  """Refuses fields that are none of their choices."""
  for name, allowed in choices.items():
    if getattr(config, name) not in allowed:
      raise InputError(f"--{name}={getattr(config, name)} is unknown; needed: "
                       f"{', '.join(map(str, allowed))}")
