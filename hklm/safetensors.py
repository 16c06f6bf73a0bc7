"""Parameters as one file of the format safetensors, and back.

Each has its name in `hklm.parameters`, and its own layout and dtype. The header's entry `hklm` says
as JSON whose they are (`run`, the identity of a run) and what they are (`sha256`, of names, dtypes,
shapes and numbers).
"""

import hashlib
import json
import os

import numpy as np

from hklm import parameters
from hklm.errors import InputError
from hklm.model import LanguageModel

NAME = "model.safetensors"  # in a folder that `hklm.interop.folders` wrote
_ENTRY = "hklm"  # one alone: the library orders several as it likes


def contents(params, run: str) -> bytes:
  """The bytes of a file.

  Args:
    params: as `lm.init` returns them.
    run: the identity of the run that they are of.

  Raises:
    InputError: they are not finite (named).

  >>> from hklm import ModelConfig, language_model
  >>> import jax, os, tempfile
  >>> lm = language_model(ModelConfig(vocab_size=5, embedding_size=0, hidden_size=4))
  >>> params = lm.init(jax.random.key(0))
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   path = os.path.join(folder, NAME)
  ...   with open(path, "wb") as file:
  ...     _ = file.write(contents(params, "a run"))
  ...   again = read(path, lm, "a run")
  >>> bool((again["lstm_0"]["w_hh"] == params["lstm_0"]["w_hh"]).all())
  True
  """
  import safetensors.numpy  # here, as below: no training needs it
  parameters.check_finite(parameters.flat(params))
  # Its writer takes an array's memory as it lies.
  tensors = {name: np.ascontiguousarray(leaf) for name, leaf in parameters.flat(params).items()}
  about = json.dumps({"run": run, "sha256": _digest(tensors)})
  return safetensors.numpy.save(tensors, metadata={_ENTRY: about})


def read(path: str, lm: LanguageModel, run: str) -> dict:
  """The parameters that a file holds.

  Args:
    path: the file.
    lm: the model that is to have them.
    run: the identity of the run that they must be of.

  Raises:
    InputError: not readable, not what `contents` made, of another run, damaged; a tensor that is
      missing, too many, of another shape or dtype, or not finite (named).
  """
  import safetensors
  if not os.path.isfile(path):
    raise InputError(f"{path} is not there, or no file; needed: the file as export wrote it")
  try:
    with safetensors.safe_open(path, framework="np") as file:
      about = json.loads((file.metadata() or {}).get(_ENTRY, "null"))
      names = file.keys()
      tensors = {name: file.get_tensor(name) for name in names}
  except Exception as error:  # damage shows as whatever the part that met it raises
    reason = " ".join(str(error).split())
    raise InputError(f"{path}: not readable ({reason:.200}); needed: the file as export wrote it"
                     ) from error
  if not isinstance(about, dict):
    raise InputError(f"{path}: its header has no {_ENTRY}: another program's; needed: the file as "
                     "export wrote it, or import_torch for weights from elsewhere")
  params = parameters.nested(tensors, lm, path)
  if about.get("run") != run:
    raise InputError(f"{path}: another run's, or config.json has changed since; needed: the file "
                     "as export wrote it")
  if about.get("sha256") != _digest(tensors):
    raise InputError(f"{path}: the tensors are not what was written; needed: the file as export "
                     "wrote it")
  return params


def _digest(tensors) -> str:
  """SHA-256 of tensors by name, hexadecimal."""
  digest = hashlib.sha256()
  for name, its in sorted(tensors.items()):
    digest.update(f"{name} {its.dtype} {its.shape} ".encode())
    digest.update(its.tobytes())
  return digest.hexdigest()
