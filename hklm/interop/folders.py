"""A run as weights alone: `model.safetensors` with its configuration and tokenizer beside it.

`hklm.load_run` reads such a folder as it reads a run directory, wherever it has been moved to.
"""

import os

from hklm import files, parameters, safetensors
from hklm import run as runs
from hklm.errors import InputError
from hklm.model import language_model

NAMES = (runs.CONFIG, runs.TOKENIZER, safetensors.NAME)


def save(path: str, contents: runs.Contents, params, overwrite: bool = False):
  """Writes a folder, whole or not at all.

  Args:
    path: where.
    contents: of the run that the parameters are of.
    params: as `lm.init` returns them.
    overwrite: whether an older folder of this kind may be replaced.

  Raises:
    InputError: parameters that are not the model's, or not finite; something is there that may not
      be replaced; it cannot be written.

  >>> import tempfile, hklm, jax
  >>> from hklm.data.characters import CharTokenizer
  >>> config = hklm.TrainConfig(hklm.ModelConfig(vocab_size=3, embedding_size=2, hidden_size=4))
  >>> params = hklm.language_model(config.model).init(jax.random.key(0))
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   save(f"{folder}/weights", runs.Contents(config, CharTokenizer("abc")), params)
  ...   run = hklm.load_run(f"{folder}/weights")
  >>> run.tokenizer.decode([1, 0, 1]), bool((run.params["head"]["w"] == params["head"]["w"]).all())
  ('bab', True)
  """
  if os.path.isdir(path) and os.listdir(path) and not runs.is_run(path):  # another program's model
    raise InputError(f"--output={path} is there and is not what export wrote; needed: another "
                     "--output")
  parameters.check(parameters.flat(params), language_model(contents.config.model))
  with files.written_folder(path, "output", NAMES, overwrite) as folder:
    runs.write_contents(folder, contents)
    with files.whole(os.path.join(folder, safetensors.NAME)) as file:
      file.write(safetensors.contents(params, contents.identity))
