"""Checks every function of a language model's bundle, a user's own cell included."""

import jax
import jax.numpy as jnp

from hklm.purity.checker import check
from hklm.purity.report import Finding, PurityReport


def check_model(lm, params, *, batch_size: int = 2, length: int = 3,
                allow_output: bool = False) -> PurityReport:
  """Whether every function of a bundle is pure, and if not, which module is at fault.

  Each function is checked with `check`: without a key, and with one and a mask where it takes them.
  A Haiku module is named when it keeps an array on `self`, draws from a global generator, asks the
  clock, prints, or reads parameters under a raw JAX transform.

  Args:
    lm: what `hklm.language_model` returns.
    params: its parameters.
    batch_size: streams in a batch, B.
    length: time steps, T.
    allow_output: whether what is printed, logged or warned is let pass.

  Returns:
    One report for all; `Finding.when` begins with the names of the functions that showed it.

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=5, embedding_size=3, hidden_size=4))
  >>> check_model(lm, lm.init(jax.random.key(0))).verdict
  'pure'
  """
  findings: dict[tuple, tuple[Finding, list[str]]] = {}
  unchecked, ran, runs, compilations = {}, True, 0, 0
  for name, calls in _calls(lm, params, batch_size, length).items():
    for args in calls:
      report = check(getattr(lm, name), *args, allow_output=allow_output)
      ran, runs = ran and report.ran, runs + report.runs
      compilations += report.compilations
      unchecked |= {f"{name}: {reason}": None for reason in report.unchecked}
      for finding in report.findings:
        key = finding.rule, finding.what.replace(f"`{name}`", "the function"), finding.module
        names = findings.setdefault(key, (finding, []))[1]
        if name not in names:
          names.append(name)
  missing = set(lm._fields) - {"config"} - _calls(lm, params, batch_size, length).keys()
  unchecked |= {f"{name}: what it takes is not known here": None for name in sorted(missing)}
  return PurityReport(
      "the language model",
      tuple(finding._replace(when=f"{', '.join(names)}: {finding.when}")
            for finding, names in findings.values()),
      tuple(unchecked), ran, runs, compilations)


def _calls(lm, params, batch_size, length) -> dict[str, list[tuple]]:
  """The arguments to check each function with."""
  key, other = jax.random.split(jax.random.key(0))
  size = lm.config.vocab_size
  ids = jnp.arange((length + 1) * batch_size, dtype=jnp.int32) % size
  ids = ids.reshape(length + 1, batch_size)
  inputs, targets = ids[:-1], ids[1:]  # [T, B]
  mask = jnp.arange(length)[:, None] >= jnp.arange(batch_size) % 2  # one line starts later
  state = lm.initial_state(params, batch_size)
  hidden, _ = lm.hidden(params, None, inputs, state)
  return {
      "init": [(key,)],
      "initial_state": [(params, batch_size)],
      "readout": [(params, state)],
      "step": [(params, k, inputs[0], state) for k in (None, other)],
      "unroll": [(params, None, inputs, state), (params, other, inputs, state, mask)],
      "hidden": [(params, None, inputs, state), (params, other, inputs, state, mask)],
      "head": [(params, hidden)],
      "loss": [(params, None, inputs, targets, state),
               (params, other, inputs, targets, state, mask)],
      "activations": [(params, inputs, state)],
  }
