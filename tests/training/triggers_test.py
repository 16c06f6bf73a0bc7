"""Which validation starts averaging, what is validated then, and the rate on a plateau."""

import dataclasses
import itertools
import math

import jax
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.config import TrainConfig
from hklm.metrics import Metrics
from hklm.training import averages, loop, step
from tests import oracle
from tests.training import updates


def config(trigger, patience, latest=0):
  return TrainConfig(average="polyak", average_trigger=trigger, average_patience=patience,
                     average_latest=latest)


def found(losses, config_):
  """The number, from 1, of the validation that starts averaging, or None."""
  history, numbers = averages.History(), []
  for number, nats in enumerate(losses, 1):
    history, starts = averages.seen(history, nats, config_)
    numbers += [number] * starts
  assert len(numbers) < 2
  return numbers[0] if numbers else None


def nonmonotone(losses, n):
  """By the code of Merity et al. 2017: `logs` has all that were before."""
  logs = []
  for number, v in enumerate(losses, 1):
    if len(logs) > n and v > min(logs[:-n]):
      return number
    logs.append(v)
  return None


def no_gain(losses, n):
  """By the code of Melis et al. 2020: so many turns since the best one."""
  best_turn, best = 0, math.inf
  for turn, v in enumerate(losses, 1):
    if v < best:
      best_turn, best = turn, v
    if best_turn and turn - best_turn >= n:
      return turn
  return None


class TriggerTest(parameterized.TestCase):

  @parameterized.parameters(
      ("nonmonotone", 5, [9, 8, 7, 6, 5, 5, 8.5, 9.5], 8), ("nonmonotone", 1, [3, 4, 5], 3),
      ("nonmonotone", 1, [3, 4, 3], None), ("nonmonotone", 2, [5, 4, 2, 3, 3.5, 2.5], 6),
      ("nonmonotone", 5, [1, 9, 9, 9, 9, 9, 9], 7), ("no_gain", 2, [5, 4, 4, 4], 4),
      ("no_gain", 1, [5, 5], 2), ("no_gain", 3, [5, 6, 4, 6], None),
      ("no_gain", 3, [5, 6, 4, 6, 5, 4], 6))
  def test_by_hand(self, trigger, patience, losses, expected):
    self.assertEqual(found(losses, config(trigger, patience)), expected)
    for latest in range(1, len(losses) + 2):
      its = min(n for n in (expected, latest) if n)
      self.assertEqual(found(losses, config(trigger, patience, latest)),
                       its if its <= len(losses) else None)

  @parameterized.product(trigger=["nonmonotone", "no_gain"], patience=[1, 2, 5])
  def test_by_the_rules_of_the_authors_code(self, trigger, patience):
    draw, numbers = np.random.RandomState(0), set()
    rule = {"nonmonotone": nonmonotone, "no_gain": no_gain}[trigger]
    for case in range(200):
      falls = draw.choice([0.0, 0.5, 2.0])  # few digits, so that some are equal
      losses = np.round(draw.normal(size=30) - falls * np.arange(30), case % 3).tolist()
      expected = rule(losses, patience)
      numbers.add(expected)
      self.assertEqual(found(losses, config(trigger, patience)), expected)
    self.assertGreater(len(numbers), 3)
    self.assertIn(None, numbers)

  def test_nan_is_never_the_best(self):
    self.assertEqual(found([math.nan, 3.0, math.nan, math.nan], config("no_gain", 2)), 4)
    self.assertEqual(found([math.nan, math.nan, 3.0], config("nonmonotone", 1)), None)

  def test_what_is_kept_does_not_grow(self):
    its, history = config("no_gain", 3), averages.History()
    for number in range(50):
      history, _ = averages.seen(history, -float(number), its)
    self.assertEqual(history, averages.History(50, (-46.0, -47.0, -48.0, -49.0)))


class AveragingTest(oracle.X64TestCase):

  def test_from_the_update_after_it_on_the_mean_is_validated_and_kept(self):
    model = hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=3, dtype="float64")
    its = dataclasses.replace(config("nonmonotone", 1), batch_size=2)
    optimizer = updates.sgd(0.5)
    lm, state = updates.started(model, optimizer, its, 2)
    update, params, validated, best = step.make_update(lm, optimizer, its), [], {}, {}
    # Validations after updates 2, 4, ...; the third, after update 6, is worse than the first.
    losses = iter([5.0, 4.0, 5.5, 3.0, 9.0, 2.0])

    def recording(*args):
      state, metrics = update(*args)
      params.append(updates.kept(state.params))
      return state, metrics

    def validate(number, its):
      validated[number] = updates.kept(its)
      return Metrics(nats=next(losses), tokens=1)

    hooks = loop.Hooks(log=lambda *_: None, validate=validate,
                       save_best=lambda number, its: best.update({number: updates.kept(its)}),
                       save=lambda *_: None, stop=lambda _: False)
    state, progress = loop.run(
        recording, state, loop.Progress(), updates.Listed(updates.windows(3, 4, 2, 4)), 12, hooks,
        eval_every=2, trigger=lambda history, nats: averages.seen(history, nats, its))
    self.assertEqual(int(state.average_start), 6)
    self.assertTrue(progress.history.started)
    self.assertEqual(progress.history.validations, 3)
    for number, its in validated.items():
      mean = params[number - 1] if number <= 6 else jax.tree.map(
          lambda *leaves: np.mean(leaves, axis=0), *params[6:number])
      self.assert_close(its, mean)
    self.assertEqual(list(best), [2, 4, 8, 12])
    for number, its in best.items():
      self.assert_close(its, validated[number], 0)

  def test_updates_that_were_skipped_are_not_counted(self):
    its = config("no_gain", 1)
    lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=3))
    state = step.init(lm, updates.sgd(0.5), 2, 0, its)
    state = step.averaging(state._replace(step=state.step + 9, skipped=state.skipped + 2))
    self.assertEqual(int(state.average_start), 7)


class PlateauTest(parameterized.TestCase):

  def test_the_rate_falls_as_in_the_example_of_pytorch(self):
    """`if not best or loss < best: best = loss, else: lr /= 4`, after each validation."""
    losses = np.round(np.random.RandomState(0).normal(size=25) - 0.1 * np.arange(25), 1)
    losses = np.append(losses, [losses.min(), losses.min() - 1, losses.min() - 1])  # ties
    best, rate, expected = None, 20.0, []
    for loss in losses:
      expected.append(rate)
      if best is None or loss < best:
        best = loss
      else:
        rate /= 4.0
    rates, numbers = [], itertools.count(1)

    def update(state, window, reset, length):
      rates.append(20.0 * float(state.rate_factor))
      return state._replace(step=np.int32(next(numbers))), step.StepMetrics(0.0, 2, 1.0, 0)

    start = step.TrainState(0.0, (), (), jax.random.key(0), np.int32(0), np.float32(1), None,
                            np.int32(0))
    validations = iter(losses)
    hooks = loop.Hooks(log=lambda *_: None,
                       validate=lambda *_: Metrics(nats=float(next(validations)), tokens=1),
                       save_best=lambda *_: None, save=lambda *_: None, stop=lambda _: False)
    loop.run(update, start, loop.Progress(), updates.Listed([np.zeros([2, 2], np.int32)]),
             len(losses), hooks, plateau_factor=0.25)
    self.assertEqual(rates, expected)


if __name__ == "__main__":
  absltest.main()
