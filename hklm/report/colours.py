"""Colours for numbers: light to dark for amounts, blue to orange for what has a sign.

Both differ in lightness alone already, so that every reader sees their order, on paper too.
"""

RGB = tuple[int, int, int]

_AMOUNTS = ((255, 255, 255), (255, 226, 150), (240, 143, 60), (172, 50, 42), (66, 8, 44))
_BELOW = ((250, 250, 250), (120, 178, 230), (0, 66, 140))
_ABOVE = ((250, 250, 250), (245, 170, 70), (130, 60, 0))


def amount(share: float) -> RGB:
  """From white at 0 to the darkest at 1 and above.

  >>> amount(0.0), amount(0.25), amount(7.0)
  ((255, 255, 255), (255, 226, 150), (66, 8, 44))
  """
  return _between(_AMOUNTS, share)


def signed(value: float) -> RGB:
  """Blue for -1 and below, nearly white for 0, orange for 1 and above; darker is further from 0.

  >>> signed(-1.0), signed(0.0), signed(1.0)
  ((0, 66, 140), (250, 250, 250), (130, 60, 0))
  """
  return _between(_BELOW if value < 0 else _ABOVE, abs(value))


def luminance(colour: RGB) -> float:
  """The relative luminance of an sRGB colour, 0 to 1 (WCAG 2.1).

  >>> luminance((255, 255, 255)), luminance((0, 0, 0))
  (1.0, 0.0)
  """
  linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
            for c in (channel / 255 for channel in colour)]
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink(colour: RGB) -> str:
  """Black or white, whichever is easier to read on a colour.

  >>> ink((255, 226, 150)), ink((66, 8, 44))
  ('#000000', '#ffffff')
  """
  # Contrast is (lighter + 0.05) / (darker + 0.05): equal for both where L + 0.05 = sqrt(0.0525).
  return "#000000" if luminance(colour) > 0.0525 ** 0.5 - 0.05 else "#ffffff"


def name(colour: RGB) -> str:
  """As CSS writes it.

  >>> name((255, 226, 150))
  '#ffe296'
  """
  return "#" + "".join(f"{channel:02x}" for channel in colour)


def _between(stops, share):
  place = min(max(share, 0.0), 1.0) * (len(stops) - 1)
  lower = min(int(place), len(stops) - 2)
  part = place - lower
  return tuple(round(a + part * (b - a))
               for a, b in zip(stops[lower], stops[lower + 1], strict=True))
