"""Text of any origin as a part of an HTML page: it stays text."""

import html
import json

from hklm.data.base import printable

_SPACES = " \t\n"


def text(content: str) -> str:
  """What cannot be printed is spelled out, white space aside; then HTML's signs are escaped.

  So no control character is left that a browser would drop, nor half a surrogate pair.

  >>> print(text('</style>"&\\0\\u2028'))
  &lt;/style&gt;&quot;&amp;\\x00\\u2028
  """
  return html.escape("".join(c if c in _SPACES else printable(c) for c in content))


def json_data(value) -> str:
  """JSON that can stand in a `<script type="application/json">`: no `<`, `>`, `&`, all of it ASCII.

  Raises:
    ValueError: a number that is not finite.

  >>> print(json_data({"a": "</script>é&"}))
  {"a":"\\u003c/script\\u003e\\u00e9\\u0026"}
  """
  plain = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
  for sign in "<>&":
    plain = plain.replace(sign, f"\\u{ord(sign):04x}")
  return plain
