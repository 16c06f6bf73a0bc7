"""A page as Python's own parser reads it."""

import html.parser


class Page(html.parser.HTMLParser):
  """Elements with their attributes, and the text in each."""

  VOID = ("meta", "input")

  def __init__(self, page):
    super().__init__()
    self.elements, self._open = [], []
    self.feed(page)
    self.close()
    assert not self._open, self._open

  def handle_starttag(self, tag, attrs):
    self.elements.append((tag, dict(attrs), []))
    if tag not in self.VOID:
      self._open.append(self.elements[-1])

  def handle_startendtag(self, tag, attrs):
    self.elements.append((tag, dict(attrs), []))

  def handle_endtag(self, tag):
    assert self._open.pop()[0] == tag, tag

  def handle_data(self, data):
    for _, _, texts in self._open:
      texts.append(data)

  def all(self, tag, **attributes):
    return [(attrs, "".join(texts)) for name, attrs, texts in self.elements
            if name == tag and all(attrs.get(key) == its for key, its in attributes.items())]

  def one(self, tag, **attributes):
    (found,) = self.all(tag, **attributes)
    return found
