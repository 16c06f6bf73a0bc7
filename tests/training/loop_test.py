"""The loop: when its hooks are called, with what, and that they change nothing."""

import itertools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.data import streams
from hklm.errors import InputError
from hklm.metrics import Metrics
from hklm.training import loop, optimizers, step
from tests.inference import compilations
from tests.training import updates

B = 2
WINDOWS = updates.Listed([np.full([3, B], n, np.int32) for n in range(4)])


def counting_update(nats=lambda n: float(n), norm=lambda n: 0.5):
  """An update without a model: its parameter counts updates, `seen` keeps windows and resets."""
  seen = []

  def update(state, window, reset, length):
    n = int(state.step) + 1
    seen.append((int(window[0, 0]), reset.tolist()))
    state = state._replace(params=jnp.int32(n), step=jnp.int32(n))
    return state, step.StepMetrics(jnp.float32(nats(n)), jnp.int32(4), jnp.float32(norm(n)),
                                   jnp.int32(0))

  start = step.TrainState(jnp.int32(0), (), (), jax.random.key(0), jnp.int32(0), jnp.float32(1),
                          None, jnp.int32(0))
  return update, start, seen


class Recorder:
  """Hooks that write down what they were called with."""

  def __init__(self, losses=(), validates=True):
    self.logged, self.validated, self.best, self.last = [], [], [], []
    self._losses = itertools.chain(losses, itertools.repeat(5.0))
    self.hooks = loop.Hooks(
        log=lambda *args: self.logged.append(args),
        validate=self._validate if validates else None,
        save_best=self._save_best,
        save=lambda state, progress: self.last.append(int(state.params)),
        stop=lambda step_: False)

  def _save_best(self, step_, params):
    assert step_ == int(params)
    self.best.append(step_)

  def _validate(self, step_, params):
    self.validated.append((step_, int(params)))
    return Metrics(nats=next(self._losses), tokens=1)


class CompilationTest(absltest.TestCase):

  def test_a_short_last_window_is_a_second_program_and_the_next_epoch_compiles_none(self):
    config = hklm.TrainConfig(hklm.ModelConfig(vocab_size=5, embedding_size=3, hidden_size=2),
                              batch_size=B, bptt=4)
    windows = streams.Streams(np.arange(30) % 5, B, 4)
    self.assertEqual([len(window) - 1 for window in windows], [4, 4, 4, 2])
    lm = hklm.language_model(config.model)
    optimizer = optimizers.optimizer(config, 8, updates.epochs_of(4))
    update, state = step.make_update(lm, optimizer), step.init(lm, optimizer, B, seed=0)
    hooks = Recorder(validates=False).hooks._replace(save=lambda state, progress: None)
    state, progress = loop.run(update, state, loop.Progress(), windows, 4, hooks)
    self.assertEqual(update._cache_size(), 2)
    with compilations.counted() as names:
      state, _ = loop.run(update, state, progress, windows, 8, hooks)
    self.assertEqual(update._cache_size(), 2)
    self.assertEmpty(names)


class CadenceTest(parameterized.TestCase):

  @parameterized.parameters(
      (0, 10, [4, 8, 10]), (0, 8, [4, 8]), (3, 10, [3, 6, 9, 10]), (100, 5, [5]), (1, 3, [1, 2, 3]))
  def test_validations(self, eval_every, steps, expected):
    update, start, _ = counting_update()
    recorder = Recorder()
    loop.run(update, start, loop.Progress(), WINDOWS, steps, recorder.hooks, eval_every)
    self.assertEqual(recorder.validated, [(n, n) for n in expected])

  @parameterized.parameters((0, [4, 8, 10]), (3, [3, 6, 9, 10]), (5, [5, 10]), (100, [10]))
  def test_savings(self, checkpoint_every, expected):
    update, start, _ = counting_update()
    recorder = Recorder(validates=False)
    state, _ = loop.run(update, start, loop.Progress(), WINDOWS, 10, recorder.hooks, 0,
                        checkpoint_every)
    self.assertEqual(recorder.last, expected)
    self.assertEqual((recorder.validated, recorder.best), ([], []))
    self.assertEqual(int(state.params), 10)

  def test_log_reports_every_update_once_and_its_own_norm(self):
    update, start, _ = counting_update(norm=lambda n: n / 2)
    recorder = Recorder()
    loop.run(update, start, loop.Progress(), WINDOWS, 50, recorder.hooks, eval_every=45)
    self.assertEqual([n for n, *_ in recorder.logged], [20, 40, 45, 50])
    self.assertEqual([m.tokens for _, m, *_ in recorder.logged], [80, 80, 20, 20])
    self.assertEqual(sum(m.nats for _, m, *_ in recorder.logged), 50 * 51 / 2)
    self.assertEqual([norm for _, _, norm, *_ in recorder.logged], [10, 20, 22.5, 25])

  def test_windows_come_in_order_and_streams_start_anew_each_epoch(self):
    update, start, seen = counting_update()
    loop.run(update, start, loop.Progress(), WINDOWS, 9, Recorder().hooks)
    self.assertEqual([window for window, _ in seen], [0, 1, 2, 3, 0, 1, 2, 3, 0])
    self.assertEqual([reset for _, reset in seen],
                     [[n % 4 == 0] * B for n in range(9)])


class BestTest(parameterized.TestCase):

  def test_best_is_kept_and_a_plateau_lowers_the_rate(self):
    update, start, _ = counting_update()
    recorder = Recorder([3.0, 2.0, 2.0, 2.5, 1.0])
    state, progress = loop.run(update, start, loop.Progress(), WINDOWS, 5, recorder.hooks,
                               eval_every=1, plateau_factor=0.5)
    self.assertEqual(recorder.best, [1, 2, 5])
    self.assertEqual(float(state.rate_factor), 0.25)
    self.assertEqual(progress, loop.Progress(best=1.0, kept=1.0, best_step=5))

  def test_where_the_best_was_lost_the_next_best_is_kept_and_the_rate_falls_as_before(self):
    update, start, _ = counting_update()
    recorder = Recorder([2.0, 2.5, 1.8, 1.9, 1.0])
    state, progress = loop.run(update, start, loop.Progress(best=1.5), WINDOWS, 5, recorder.hooks,
                               eval_every=1, plateau_factor=0.5)
    self.assertEqual(recorder.best, [1, 3, 5])
    self.assertEqual(float(state.rate_factor), 0.5**4)
    self.assertEqual(progress, loop.Progress(best=1.0, kept=1.0, best_step=5))

  def test_without_plateau_the_rate_stays(self):
    update, start, _ = counting_update()
    state, _ = loop.run(update, start, loop.Progress(), WINDOWS, 4,
                        Recorder([1.0, 2.0, 3.0]).hooks, eval_every=1)
    self.assertEqual(float(state.rate_factor), 1.0)

  def test_nan_is_never_the_best(self):
    update, start, _ = counting_update()
    recorder = Recorder([math.nan, 2.0, math.nan])
    loop.run(update, start, loop.Progress(), WINDOWS, 3, recorder.hooks, eval_every=1)
    self.assertEqual(recorder.best, [2])


class StopTest(parameterized.TestCase):

  @parameterized.product(cut=[1, 3, 19, 20, 21, 24, 44, 45], then=[0, 2, 30])
  def test_a_run_that_is_stopped_and_goes_on_is_the_run_that_was_not(self, cut, then):
    losses = [9.0, 8.0, 8.5, 7.0, 7.5]
    update, start, _ = counting_update(norm=lambda n: n / 2)
    unbroken = Recorder(losses)
    settings = {"eval_every": 10, "checkpoint_every": 7, "plateau_factor": 0.5}
    end = loop.run(update, start, loop.Progress(), WINDOWS, 45, unbroken.hooks, **settings)

    broken, calls = Recorder(losses), itertools.count(1)
    hooks = broken.hooks._replace(stop=lambda step_: next(calls) in (cut, cut + then))
    state, progress = start, loop.Progress()
    saved = []
    while int(state.step) < 45:
      state, progress = loop.run(update, state, progress, WINDOWS, 45, hooks, **settings)
      saved.append(int(state.step))
    chex.assert_trees_all_equal((state._replace(key=0), progress), (end[0]._replace(key=0), end[1]))
    self.assertEqual(broken.logged, unbroken.logged)
    self.assertEqual(broken.validated, unbroken.validated)
    self.assertEqual(broken.best, unbroken.best)
    self.assertEqual(set(broken.last), set(unbroken.last) | set(saved))
    self.assertEqual(saved, sorted({n for n in (cut, cut + then) if n < 45} | {45}))

  def test_a_run_that_is_complete_makes_no_update(self):
    update, start, seen = counting_update()
    recorder = Recorder()
    end = loop.run(update, start, loop.Progress(), WINDOWS, 5, recorder.hooks)
    made = len(seen)
    self.assertEqual(loop.run(update, *end, WINDOWS, 5, recorder.hooks), end)
    self.assertLen(seen, made)


class NotFiniteTest(parameterized.TestCase):

  @parameterized.product(bad=[1, 20, 21, 33], value=[math.nan, math.inf], where=["nats", "norm"])
  def test_stops_with_the_update_named(self, bad, value, where):
    update, start, seen = counting_update(
        **{where: lambda n: value if n == bad else 1.0})
    recorder = Recorder()
    with self.assertRaisesRegex(InputError, f"^update {bad}: the loss is .* needed: finite"):
      loop.run(update, start, loop.Progress(), WINDOWS, 1000, recorder.hooks, 1000, 5)
    self.assertLessEqual(len(seen), bad + loop.LOG_EVERY)
    # what was saved is from before
    self.assertTrue(all(saved < bad for saved in recorder.last))
    self.assertEqual(recorder.best, [])

  def test_a_real_run_that_diverges(self):
    config = hklm.TrainConfig(
        hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2), optimizer="sgd",
        learning_rate=3e38, clip=0.0, schedule="constant")
    lm = hklm.language_model(config.model)
    optimizer = optimizers.optimizer(config, 100, updates.epochs_of(4))
    with self.assertRaisesRegex(InputError, "^update [0-9]+: the loss is"):
      loop.run(step.make_update(lm, optimizer), step.init(lm, optimizer, B, 0), loop.Progress(),
               WINDOWS, 100, Recorder(validates=False).hooks._replace(save=lambda *_: None))


class HooksChangeNothingTest(parameterized.TestCase):

  def test_parameters_are_the_same_bits_whatever_is_logged_validated_and_saved(self):
    config = hklm.TrainConfig(
        hklm.ModelConfig(vocab_size=4, embedding_size=3, hidden_size=5, output_dropout=0.3),
        learning_rate=0.05)
    lm = hklm.language_model(config.model)
    optimizer = optimizers.optimizer(config, 11, updates.epochs_of(4))
    update = step.make_update(lm, optimizer)
    draw = np.random.RandomState(0)
    windows = updates.Listed([draw.randint(4, size=[4, B]).astype(np.int32) for _ in range(4)])
    ends = []
    for eval_every, checkpoint_every, validates in ((0, 0, False), (1, 1, True), (3, 2, True)):
      saved = []
      hooks = loop.Hooks(
          log=lambda *_: None,
          validate=(lambda _, params: hklm.evaluate(lm, params, [0, 1, 2, 3, 0])) if validates
          else None,
          save_best=lambda n, params, to=saved: to.append(params),
          save=lambda state, progress, to=saved: to.append(np.array(state.params["head"]["w"])),
          stop=lambda step_: False)
      end, _ = loop.run(update, step.init(lm, optimizer, B, 0), loop.Progress(), windows, 11, hooks,
                        eval_every, checkpoint_every)
      ends.append(jax.tree.map(np.array, end.params))
    chex.assert_trees_all_equal(ends[0], ends[1], ends[2])


if __name__ == "__main__":
  absltest.main()
