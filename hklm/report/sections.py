"""The parts of a report's page that show curves, text, words and samples, as HTML."""

import math
from collections.abc import Iterable, Mapping, Sequence

from hklm.inference.scored import ScoredLine
from hklm.report import charts, colours
from hklm.report.escaping import text

WORDS = 20
_CONTEXT = 30  # characters on each side of a word
_END = '<span class="sign">⏎</span>\n'


def curves(rows: Iterable[Mapping], unit: str) -> str:
  """The losses of a run.

  Args:
    rows: of `metrics.jsonl`; a loss that is None has no point.
    unit: what a token is called.
  """
  series = [charts.Series(name, losses(rows, key), marks=marks) for name, key, marks in (
      ("training, with dropout if any", "train_nats_per_token", False),
      ("validation", "valid_nats_per_token", True))]
  if not any(its.points for its in series):
    return '<p class="note">metrics.jsonl has no losses.</p>'
  said = ""
  if series[1].points:
    bits, step = min((bits, step) for step, bits in series[1].points)
    said = f"<p>Lowest validation: {bits:.4f} bits per {text(unit)}, after update {step:,}.</p>"
  return said + charts.chart("Losses over the updates", "update", f"bits per {unit}", series)


def losses(rows: Iterable[Mapping], key: str) -> list[tuple[int, float]]:
  """Updates and losses in bits per token.

  >>> losses([{"step": 2, "a": math.log(2)}, {"step": 3}, {"step": 4, "a": None}], "a")
  [(2, 1.0)]
  """
  return [(row["step"], row[key] / math.log(2)) for row in rows if row.get(key) is not None]


def legend(vocab_size: int) -> str:
  """What the colours of surprisal mean: white is 0 bits, the darkest log2 V and more."""
  most = top(vocab_size)
  bar = "".join(f'<i style="background:{colours.name(colours.amount(n / 48))}"></i>'
                for n in range(49))
  marks = "".join(f"<span>{most * n / 4:.1f}{'+' if n == 4 else ''}</span>" for n in range(5))
  return (f'<div class="legend" id="legend"><span>surprisal in bits</span><div class="scale">'
          f'<div class="bar" aria-hidden="true">{bar}</div><div class="ticks">{marks}</div></div>'
          f'<span class="note">{most:.2f} bits are log<sub>2</sub> {vocab_size:,}: a guess among '
          'all alike</span></div>')


def top(vocab_size: int) -> float:
  """Bits of the darkest colour: what a token costs a model that knows nothing.

  >>> top(16)
  4.0
  """
  return max(math.log2(vocab_size), 1.0)


def coloured(lines: Sequence[ScoredLine], vocab_size: int) -> str:
  """The text, an element a token; what is between tokens is plain."""
  parts, most, number = [], top(vocab_size), 0
  for line, last in zip(lines, [False] * (len(lines) - 1) + [True], strict=True):
    done = 0  # characters that are shown
    for token, shown, gap in spelled(line):
      bits = float(line.surprisals[token])
      colour = colours.amount(bits / most)
      kind = ' class="unknown"' if line.unknown[token] else ""
      parts.append(
          f'{text(gap)}<span role="option" tabindex="{-1 if number else 0}" '
          f'data-n="{number}"{kind} aria-label="{text(line.symbols[token])}: {bits:.2f} bits" '
          f'style="background:{colours.name(colour)};color:{colours.ink(colour)}">'
          f'{_END if shown is None else text(shown)}</span>')
      number += 1
      done = max(done, int(line.ends[token]))
    rest = line.text[done:]
    parts.append(text(rest) + ("" if line.ended or last else "\n"))
  return "".join(parts)


def spelled(line: ScoredLine) -> Iterable[tuple[int, str | None, str]]:
  """Of each token: its place, the text to show, what is skipped before it.

  A token that is a part of a character that is shown already is spelled as its symbol; for the end
  of the line there is None.
  """
  done = 0
  for token, (start, end) in enumerate(zip(line.starts.tolist(), line.ends.tolist(), strict=True)):
    gap = line.text[done:start]
    shown = line.text[max(start, done):end] or line.symbols[token]
    if line.ended and token == len(line.starts) - 1:
      gap, shown = line.text[done:], None
    yield token, shown, gap
    done = max(done, end)


def words(lines: Iterable[ScoredLine]) -> str:
  """A table of the words that cost most; ends of lines are no words."""
  found = [(word, line.text) for line in lines for word in line.by_word()
           if word.char_end > word.char_start]
  found = sorted(found, key=lambda its: -its[0].surprisal_bits)[:WORDS]
  rows = "".join(
      f'<tr><td class="number">{word.surprisal_bits:.2f}</td><td class="word">{text(word.text)}'
      f'{" (unknown)" if word.unknown else ""}</td><td class="number">{word.tokens}</td>'
      f'<td class="number">{word.line}</td><td class="context">{_context(word, line)}</td></tr>'
      for word, line in found)
  return ('<p>The surprisal of a word is the sum over its tokens, the white space before it '
          'included; lines count from 0.</p>'
          '<div class="scroll"><table><thead><tr><th class="number">bits</th><th>word</th>'
          '<th class="number">tokens</th><th class="number">line</th><th>where</th></tr>'
          f"</thead><tbody>{rows}</tbody></table></div>")


def _context(word, line):
  before = line[max(0, word.char_start - _CONTEXT):word.char_start].lstrip()
  after = line[word.char_end:word.char_end + _CONTEXT].rstrip()
  return f"{text(before)}<mark>{text(word.text)}</mark>{text(after)}"


def samples(texts: Mapping[float, str]) -> str:
  """What the model wrote, the coldest first.

  >>> samples({1.0: "a < b", 0.5: "a"})
  '<h3>temperature 0.5</h3><pre>a</pre><h3>temperature 1</h3><pre>a &lt; b</pre>'
  """
  return "".join(f"<h3>temperature {temperature:g}</h3><pre>{text(its)}</pre>"
                 for temperature, its in sorted(texts.items()))


def token_data(lines: Iterable[ScoredLine]) -> dict[str, list]:
  """What the page's script says of each token, a list a column."""
  found = {name: [] for name in ("symbol", "bits", "entropy", "reduction", "rank", "unknown",
                                 "line", "index", "word", "word_bits")}
  for line in lines:
    by_word = {word.word: word for word in line.by_word()}
    for row in line.tokens():
      word = by_word[row.word]
      for name, value in zip(found, (
          row.token, row.surprisal_bits, row.entropy_bits, row.entropy_reduction_bits, row.rank,
          row.unknown, row.line, row.index, word.text, word.surprisal_bits), strict=True):
        found[name].append(round(value, 4) if isinstance(value, float) else value)
  return found
