"""The functions that checkers of purity are compared on, each with arguments to call it with.

What is pure: the same input gives the same output, however often and whenever a function runs;
having run it leaves no trace. What is put back before returning leaves none. A global, an attribute
or a variable of an enclosing function that some code rebinds is state, and whoever reads it is
impure; what nothing rebinds is a constant. A function also counts as run when it is compiled or
differentiated by JAX.
"""

import functools
import inspect
import os
import tempfile
import types
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.purity import (
    calls,
    chex_calls,
    impure,
    impure_jax,
    impure_world,
    optax_calls,
    pure,
    pure_jax,
)


class Example(NamedTuple):
  """A function with arguments.

  Attributes:
    name: unique among all.
    function: what is called.
    arguments: returns new positional arguments whenever it is called.
    kind: in what way it is impure, or what makes it look so.
  """

  name: str
  function: Callable
  arguments: Callable[[], tuple]
  kind: str


def definition(function) -> types.FunctionType:
  """The function that was written with `def`: below decorators, behind an object's call."""
  if isinstance(function, types.MethodType):
    return function.__func__
  if isinstance(function, functools.partial):
    return definition(function.func)
  function = inspect.unwrap(function)
  return function if isinstance(function, types.FunctionType) else type(function).__call__


def by_name(examples) -> tuple[Example, ...]:
  """The examples in the order of their names."""
  return tuple(sorted(examples, key=lambda example: example.name))


def _examples(*rows) -> tuple[Example, ...]:
  examples = []
  for function, arguments, kind in rows:
    written = definition(function)
    name = written.__name__ if written.__name__ != "__call__" else type(function).__name__
    examples.append(Example(name, function, arguments, kind))
  return tuple(examples)


def _of_library(module, kind) -> tuple[Example, ...]:
  functions = calls.functions(module.__name__, module.IMPORTS, module.CALLS)
  return tuple(Example(call.name, functions[call.name], functools.partial(calls.arguments, call),
                       kind)
               for call in module.CALLS)


def _x():
  return calls.NAMES["x"]()


def _key():
  return calls.NAMES["key"]()


def _linear(rows, columns):
  return {"w": jnp.asarray(np.full((rows, columns), 0.5, np.float32)),
          "b": jnp.asarray(np.arange(columns, dtype=np.float32))}


def _file_in_temporary_directory():
  return os.path.join(tempfile.gettempdir(), "metrics_of_an_example.json")


_STATE = _examples(
    (impure.append_total, lambda: ([1, 2, 3],), "appends to an argument"),
    (impure.fill_in_defaults, lambda: ({"optimizer": {"name": "SGD"}},),
     "changes a dict inside an argument"),
    (impure.pop_learning_rate, lambda: ({"learning_rate": 0.1, "seed": 1},),
     "takes an entry out of an argument"),
    (impure.center_columns, lambda: (np.float32([[1, 2], [3, 6]]),),
     "changes a NumPy argument in place"),
    (impure.measure_length, lambda: (impure.Document("to be or not"),),
     "sets an attribute of an argument"),
    (impure.shuffled_rows, lambda: ([1, 2, 3, 4, 5, 6], 3), "shuffles an argument"),
    (impure.count_batch, lambda: ([1, 2],), "counts in a global"),
    (impure.remember_loss, lambda: (2.0,), "sets a global that it does not read"),
    (impure.scaled_loss, lambda: (0.5,), "reads a global that another function rebinds"),
    (impure.square_from_table, lambda: (12,), "fills a global dict"),
    (impure.record_accuracy, lambda: (3, 4), "appends to a global list"),
    (impure.loss_is_stale, lambda: (0.25,), "differs from the third call on"),
    (impure.collect_words, lambda: ("to be",), "changes a mutable default"),
    (impure.predict_and_count, lambda: (4,), "sets an attribute of itself"),
    (impure.number_step, lambda: (0.5,), "counts in a closure"),
    (impure.is_confident, lambda: (0.7,), "reads a closure's variable that a sibling rebinds"),
    (impure.encode_and_count, lambda: ("abc",), "counts in a class attribute"),
    (impure.rounded_score, lambda: (0.98765,), "reads a class attribute that a setter rebinds"),
    (impure.running_mean.mean_with, lambda: (3.0,), "a method that changes its object"),
    (impure.every_other, lambda: (5,), "an object that is called and remembers"),
    (impure.turn_up_verbosity, lambda: (2,), "sets an attribute of another module"),
    (impure.formatted_loss, lambda: (0.123456,),
     "reads an attribute of another module that a setter rebinds"),
    (impure.number_document, lambda: ("Faust",), "takes from a global iterator"),
    (impure.sum_of_next_batch, lambda: (2,), "takes from a global generator"),
)

_WORLD = _examples(
    (impure_world.describe_batch, lambda: ([3, 1, 2],), "prints"),
    (impure_world.report_progress, lambda: (3, 4), "writes to standard error"),
    (impure_world.checked_learning_rate, lambda: (3.0,), "logs a warning"),
    (impure_world.wait_for_reader, lambda: (7,), "waits for input()"),
    (impure_world.answered_number, lambda: ("How many? ",), "reads standard input"),
    (impure_world.timed_total, lambda: ([1, 2, 3],), "reads the clock for nothing"),
    (impure_world.name_of_run, lambda: ("lstm",), "puts today's date in a name"),
    (impure_world.year_of_report, lambda: ("Losses",), "puts this year in a title"),
    (impure_world.seconds_for_sorting, lambda: ([3, 1, 2],), "times itself"),
    (impure_world.seconds_budget_left, lambda: (1e9,), "reads the monotonic clock"),
    (impure_world.drop_words, lambda: (["a", "rose", "is", "a", "rose"], 0.5),
     "draws from Python's global generator"),
    (impure_world.jittered_weights, lambda: (np.ones(3),), "draws from NumPy's global generator"),
    (impure_world.noisy_image, lambda: (np.zeros((2, 2)),), "draws from a global generator object"),
    (impure_world.random_crop_start, lambda: (100_003,), "draws from a generator without a seed"),
    (impure_world.reproducible_order, lambda: (5,), "seeds Python's global generator"),
    (impure_world.seeded_weights, lambda: (3,), "seeds NumPy's global generator"),
    (impure_world.salted, lambda: ("password",), "asks the system for random bytes"),
    (impure_world.with_identity, lambda: ({"name": "a"},), "makes a random identifier"),
    (impure_world.session_of, lambda: ("ada",), "draws a secret for nothing"),
    (impure_world.seed_of_worker, lambda: (1,), "reads the process number"),
    (impure_world.data_path, lambda: ("corpus.txt",), "reads an environment variable"),
    (impure_world.limit_threads, lambda: (3,), "sets an environment variable"),
    (impure_world.number_of_lines, lambda: (impure_world.__file__,), "reads a file"),
    (impure_world.has_checkpoint, lambda: (tempfile.gettempdir(),), "looks whether a file exists"),
    (impure_world.save_metrics, lambda: (_file_in_temporary_directory(), {"loss": 0.5}),
     "writes a file"),
    (impure_world.absolute_path, lambda: ("corpus.txt",), "reads the working directory"),
    (impure_world.enter_directory, lambda: (tempfile.gettempdir(),),
     "changes the working directory"),
    (impure_world.date_by_program, lambda: ("at",), "runs another program"),
    (impure_world.log_of_counts, lambda: (np.float64([0, 1, 2]),),
     "changes how NumPy treats errors"),
    (impure_world.mean_without_warning, lambda: ([1.0, 2.0],), "changes the warning filters"),
    (impure_world.depth_of_tree, lambda: ([[], [[]]],), "changes the interpreter's settings"),
)

_TRACED = _examples(
    (impure_jax.hidden_layer, lambda: (_x(),), "leaks a tracer into a global list"),
    (impure_jax.descend, lambda: (_x(), _x()), "compiled, reads a global that a setter rebinds"),
    (impure_jax.sum_of_squares, lambda: (_x(),), "fills a global dict only when traced"),
    (impure_jax.cube_and_announce, lambda: (_x(),), "prints when it is compiled"),
    (impure_jax.perturbed, lambda: (_x(),), "draws from NumPy's global generator when compiled"),
    (impure_jax.gradient_through_watch, lambda: (_x(),), "its backward pass appends to a global"),
    (impure_jax.reversed_gradient, lambda: (_x(),), "counts only when differentiated"),
    (impure_jax.slope_of_safe_log, lambda: (jnp.float32(2),), "its derivative rule counts"),
    (impure_jax.mean_and_show, lambda: (_x(),), "prints by jax.debug.print"),
    (impure_jax.norm_and_log, lambda: (_x(),), "appends to a global by jax.debug.callback"),
    (impure_jax.total_and_position, lambda: (_x(),), "counts on the host by io_callback"),
    (impure_jax.uniform_from_host, lambda: (_x(),), "draws on the host by pure_callback"),
    (impure_jax.updated_in_place, lambda: (_x(), _x()), "donates an argument"),
    (impure_jax.precise_product, lambda: (jnp.eye(2), jnp.eye(2)), "changes JAX's configuration"),
    (impure_jax.fresh_noise, lambda: (_x(),), "moves a global seed on"),
    (impure_jax.train_step, lambda: (np.float32([1, 2, 3]),), "updates global parameters"),
    (impure_jax.noisy_forward, lambda: ({"noisy_linear/linear": _linear(3, 2)}, jnp.ones((1, 3))),
     "a Haiku module that draws from NumPy"),
    (impure_jax.kept_forward,
     lambda: ({"linear": _linear(3, 3), "linear_1": _linear(3, 2)}, jnp.ones((1, 3))),
     "a Haiku function that keeps its outputs"),
    (impure_jax.named_parameters, lambda: (_key(), jnp.ones((1, 3))),
     "a Haiku function that keeps names when initialised"),
)

_PYTHON = _examples(
    (pure.numbers_below, lambda: (4,), "appends to its own list"),
    (pure.word_counts, lambda: ("to be or not to be",), "fills its own dict"),
    (pure.vocabulary_of, lambda: (["to be", "not to be"],), "fills its own set"),
    (pure.sum_of_even_squares, lambda: (7,), "uses up its own generator"),
    (pure.windows_of, lambda: ([1, 2, 3, 4], 2), "a generator inside"),
    (pure.fibonacci, lambda: (10,), "calls itself"),
    (pure.is_even, lambda: (10,), "two functions that call each other"),
    (pure.evaluate_once, lambda: (5,), "sets and restores a closure's variable"),
    (pure.nested_sum, lambda: ([1, [2, [3]], 4],), "sets and restores a global"),
    (pure.dot_with_bias, lambda: ([1.0, 2.0, 3.0], [4.0, 5.0]), "changes and restores an argument"),
    (pure.median, lambda: ([3, 1, 2],), "sorts a copy"),
    (pure.unchanged, lambda: ([1, 2],), "returns its argument"),
    (pure.cubic, lambda: (3,), "a closure over a constant"),
    (pure.encode_letters, lambda: ("abc",), "a mutable default that nothing changes"),
    (pure.paths_through_grid, lambda: (4, 5), "remembers its results by lru_cache"),
    (pure.chance_of_middle, lambda: (4,), "calls a function with an lru_cache"),
    (pure.seeded_split, lambda: ([1, 2, 3, 4, 5], 7), "its own seeded generator"),
    (pure.seeded_noise, lambda: (np.zeros(3), 7), "its own seeded NumPy generator"),
    (pure.table_as_text, lambda: ([["a", 1], ["b", 2]],), "writes into its own text buffer"),
    (pure.mean_of, lambda: ([1.0, 2.0, 6.0],), "its own object with state"),
    (pure.numbers_in, lambda: (["1.5", "?", "2"],), "catches its own exceptions"),
    (pure.log_ratio, lambda: ([0.0, 1.0], [0.0, 2.0]), "restores NumPy's error settings"),
    (pure.mean_of_none, lambda: ([],), "returns NaN"),
    (pure.field_order, lambda: (["loss", "step", "loss"],), "returns a dict in its own order"),
    (pure.slug, lambda: ("To be, or not to be",), "regular expressions, cached by Python"),
    (pure.scaled_by, lambda: (3,), "returns a function"),
    (pure.power_of, lambda: (3,), "returns a partial application"),
    (pure.decayed, lambda: (pure.Schedule(0.1, 0.5), 3), "replaces a field in a copy"),
    (pure.product_of, lambda: ([2, 3, 7],), "reduces with a lambda"),
    (pure.standardized, lambda: (np.float64([[1, 2], [3, 6]]),), "changes its copy in place"),
    (pure.printed_lines, lambda: (["a", "b"],), "prints into its own buffer"),
    (pure.spread_of, lambda: ([1.0, 2.0, 4.0],), "imports when it is called"),
    (pure.quiet_mean, lambda: ([1.0, 2.0],), "restores the warning filters"),
    (pure.exact_quotient, lambda: (1, 7), "restores the decimal context"),
    (pure.fingerprint, lambda: ({"b": 1, "a": [2]},), "a hash that is fed in steps"),
    (pure.smallest, lambda: ([5, 2, 9, 1], 2), "makes a heap of a copy"),
    (pure.run_lengths, lambda: ("aabccc",), "iterators of itertools"),
    (pure.roman_number, lambda: ("CCXLIV",), "reads a constant table"),
)

_JAX = _examples(
    (pure_jax.two_noises, lambda: (_key(), _x()), "splits a key"),
    (pure_jax.dropped_out, lambda: (_key(), _x()), "draws with a key"),
    (pure_jax.stable_softmax, lambda: (_x(),), "compiled"),
    (pure_jax.powers_of, lambda: (_x(),), "a list of tracers that stays inside"),
    (pure_jax.repeated, lambda: (_x(), 3), "compiled with a static argument"),
    (pure_jax.pairwise_distances, lambda: (jnp.float32([[0, 1], [2, 3], [5, 5]]),), "vmapped"),
    (pure_jax.moving_average, lambda: (_x(),), "scan"),
    (pure_jax.newton_root, lambda: (jnp.float32(2),), "while_loop"),
    (pure_jax.factorial, lambda: (5,), "fori_loop"),
    (pure_jax.leaky_or_not, lambda: (_x(), True), "cond"),
    (pure_jax.clipped_gradient, lambda: (_x(),), "custom_vjp"),
    (pure_jax.slope_of_log, lambda: (jnp.float32(1),), "custom_jvp"),
    (pure_jax.loss_and_gradient,
     lambda: ({"w": jnp.float32(2), "b": jnp.float32(1)}, _x(), _x()), "differentiates inside"),
    (pure_jax.compiled_double, lambda: (_x(),), "compiles a lambda inside"),
    (pure_jax.shifted_by_host, lambda: (_x(),), "pure_callback to a pure function"),
    (pure_jax.with_first_zero, lambda: (_x(),), "an update of a copy by .at"),
    (pure_jax.doubled_tree, lambda: ({"w": _x(), "b": [_x()]},), "maps over a tree"),
    (pure_jax.shape_of_product, lambda: (jnp.eye(2), jnp.ones((2, 3))), "traces without running"),
    (pure_jax.precise_matmul, lambda: (jnp.eye(2), jnp.eye(2)), "restores JAX's configuration"),
    (pure_jax.remembered_activations, lambda: (_x(),), "checkpoint"),
    (pure_jax.log_of_negative, lambda: (_x(),), "returns NaNs in an array"),
    (pure_jax.perceptron_parameters, lambda: (_key(), jnp.ones((1, 3))), "Haiku's init"),
    (pure_jax.perceptron_forward,
     lambda: ({"perceptron/linear": _linear(3, 3), "perceptron/linear_1": _linear(3, 2)},
              jnp.ones((1, 3))), "Haiku's apply"),
    (pure_jax.normalized_with_state,
     lambda: (*pure_jax.normalizer.init(None, jnp.ones((4, 2))),
              jnp.arange(8, dtype=jnp.float32).reshape(4, 2)), "Haiku's state, handed back"),
    (pure_jax.recurrent_step,
     lambda: (pure_jax.recurrent.init(_key(), jnp.ones((1, 3)), jnp.zeros((1, 2))),
              jnp.ones((1, 3)), jnp.zeros((1, 2))), "a step of a recurrent cell"),
    (pure_jax.adam_step,
     lambda: (jnp.ones(3), jax.jit(pure_jax.optimizer.init)(jnp.ones(3)), jnp.arange(3.0)),
     "an optimiser's step that returns its state"),
)

IMPURE = by_name((*_STATE, *_WORLD, *_TRACED))
PURE = by_name((*_PYTHON, *_JAX, *_of_library(optax_calls, "a function of optax"),
                *_of_library(chex_calls, "an assertion of chex")))
