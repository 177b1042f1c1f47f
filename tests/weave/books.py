# Tangled from book/workshop/weave.md
"""Small books that several tests weave, and what reads their pages."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXTENSIONS = ["weave.render.extension", "pymdownx.details", "pymdownx.highlight"]
EXTENSIONS += ["pymdownx.superfences", "tables"]


def plain(html):
    """The text of a page without its tags."""
    return re.sub(r"<[^>]*>", "", html).replace("&lt;", "<").replace("&gt;", ">")


def noweb(text):
    """The text with «name» for a reference, so that the tangler does not take it for one of its own."""
    return text.replace("«", "<<").replace("»", ">>")


BOOK = {
    "1-foundations/L0.1-tensor.md": """\
# Tensor

```python {#add}
def add(a, b):
    return a + b
```
""",
    "2-transformer/L5.3-mha.md": """\
# Attention

```python {#mha file=tinyllm/mha.py}
«add»
«split»
x «shift» 1
\\«add»
```

- in a list

    ```python {#split}
    def split():
    \treturn 1
    ```

More of it:

```python {#split}
pass
```

```python
plain = 1
```
""",
}
BOOK = {path: noweb(text) for path, text in BOOK.items()}


FACTS = """\
# {0}

```toml {{.chapter file=chapters.toml}}
["{0}"]
title = "Title of {0}"
part = 5
kind = "build"
builds = "{1}"
tests = "test_{1}"
needs = [{2}]
used_by_planned = ["L9.9"]
summary = "What `{0}` is: $d_h$."
```

```python {{#code-{0} file={1}}}
pass
```

```python {{#test-{0} file=test_{1}}}
def test_it():
    pass
```

"""


PROGRAM = {
    "0-base/a.md": noweb("""\
# A

```python {#a file=p/a.py}
class Base:
    def kept(self):
        return 1


def helper():
    return Base()
```
"""),
    "1-top/b.md": noweb("""\
# B

```toml {.chapter file=chapters.toml}
["B"]
builds = "p/b.py"
```

`helper` and `Derived.work`, `work(3)`, `p.a.helper`, `Derived.kept`, `nothing`, `x`, [`work`](#chunk-work)

```python {#b file=p/b.py}
from p.a import Base, helper as made


class Derived(Base):
    «work»

    «doc»
```

```python {#work}
def work(self):
    def inner():
        «deep»

    return made()
```

```python {#deep}
return self.kept()
```

```python {#doc}
SHARED = 1
```

```python {#contract file=c/b.py}
«doc»
```

```diff {#s01 patch=deep}
-return self.kept()
+return 0
```
"""),
}


SMALL = {
    "index.md": "# Book\n\nSee [eq. root](2-transformer/L5.3-mha.md#eq-root) and"
    " [the code](2-transformer/L5.3-mha.md#chunk-mha).\n",
    "2-transformer/L5.3-mha.md": "# L5.3 Attention\n\n$$ \\sqrt{d} \\label{eq:root} $$\n\n"
    "```python {#mha file=mha.py}\nx = 1\n```\n",
}
