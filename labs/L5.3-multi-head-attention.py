# Tangled from book/2-transformer/L5.3-lab.md
# %% [markdown]
r"""
# Lab L5.3: two heads read two places

You will compute the worked example of chapter L5.3 one step at a time, see the weights of each head, and move a query to see
the weights move with it. The lab needs the book's package and nothing else: `pip install .` in the book's folder.

One query, two keys; the keys are the values too. All four projections are the identity, so a head sees its slice of these numbers as they
stand.
"""

# %%
import numpy as np

from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention

QUERY = np.array([[[1.0, 0.0, 0.0, 2.0]]])  # [B, Tq, d]
KEYS = np.array([[[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 2.0]]])  # [B, Tk, d]


def identity_heads(n_heads):
    """Multi-head attention whose four projections are the identity."""
    module = MultiHeadAttention(4, n_heads)
    eye, zero = np.eye(4), np.zeros(4)
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    module.astype(np.float64).load_state_dict(
        {f"{name}.{part}": x for name in names for part, x in (("weight", eye), ("bias", zero))}
    )
    return module


# %% [markdown]
r"""
A heat map is a table of numbers between 0 and 1; the larger the number, the stronger the colour of its cell. In a terminal it is
plain text.
"""

# %%
try:
    from IPython.display import display as show
except ImportError:
    show = print


class HeatMap:
    """Numbers from 0 to 1 as a table with shaded cells; as text where there is no notebook."""

    def __init__(self, title, values, rows, columns):
        self.title, self.values, self.rows, self.columns = title, np.asarray(values), rows, columns

    def __repr__(self):
        lines = [f"{'':16}" + "".join(f"{name:>9}" for name in self.columns)]
        for name, row in zip(self.rows, self.values, strict=True):
            lines.append(f"{name:16}" + "".join(f"{value:9.6f}" for value in row))
        return "\n".join([self.title, *lines, ""])

    def _repr_html_(self):
        shade = "background:color-mix(in srgb,var(--fig-heat,#6fa8ff) {:.0f}%,transparent)"
        head = "".join(f'<th scope="col">{name}</th>' for name in self.columns)
        body = ""
        for name, row in zip(self.rows, self.values, strict=True):
            cells = "".join(
                f'<td style="{shade.format(70 * value)}">{value:.6f}</td>' for value in row
            )
            body += f'<tr><th scope="row">{name}</th>{cells}</tr>'
        return (
            f'<table class="heat" style="color:currentColor"><caption>{self.title}</caption>'
            f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


# %% [markdown]
r"""
## 1 What each head sees

`split_heads` cuts the features into slices. Head 0 has features 0 and 1 of the query and of each key, head 1 has features 2 and 3.
"""

# %%
two_heads = identity_heads(2)
q = two_heads.split_heads(Tensor(QUERY)).data[0]  # [H, Tq, dh]
k = two_heads.split_heads(Tensor(KEYS)).data[0]  # [H, Tk, dh]
v = k
for h in range(2):
    print(f"head {h}: query {q[h, 0]}, keys {k[h, 0]} and {k[h, 1]}")

# %% [markdown]
r"""
## 2 Scores and weights

A score is the product of query and key over $\sqrt{d_h}$, and the weights are the softmax of the scores,

$$
\operatorname{weights}_h = \operatorname{softmax}\!\left(\frac{Q_h K_h^\top}{\sqrt{d_h}}\right). \label{eq:lab-weights}
$$

Each head has a softmax of its own.
"""

# %%
scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])  # [H, Tq, Tk]
e = np.exp(scores - scores.max(axis=-1, keepdims=True))
weights = e / e.sum(axis=-1, keepdims=True)  # [H, Tq, Tk]
for h in range(2):
    print(f"head {h}: scores {scores[h, 0].round(6)}")
    show(HeatMap(f"Weights of head {h}", weights[h], ["the query"], ["k1", "k2"]))

# %% [markdown]
r"""
Head 0 prefers the first key, head 1 the second.

## 3 What they read

Each head reads the mean of the values, weighted by its own weights and in its own slice. Side by side the two slices are the
output. The module must give the same, up to the rounding of the last digit.
"""

# %%
context = weights @ v  # [H, Tq, dh]
merged = np.concatenate(list(context), axis=-1)  # [Tq, d]
print("by hand:   ", merged[0].round(6))

out, module_weights = two_heads.attend(Tensor(QUERY), Tensor(KEYS))
print("the module:", out.data[0, 0].round(6))
np.testing.assert_allclose(out.data[0], merged, rtol=0, atol=1e-12)
np.testing.assert_allclose(module_weights.data[0], weights, rtol=0, atol=1e-12)

# %% [markdown]
r"""
## 4 One head instead of two

One head of width 4 has one softmax for all four features. The larger numbers in features 2 and 3 decide for features 0 and 1 too, and
head 0's preference is gone.
"""

# %%
one_head = identity_heads(1)
out, wide = one_head.attend(Tensor(QUERY), Tensor(KEYS))
rows = ["head 0 of two", "head 1 of two", "one wide head"]
show(HeatMap("Who reads what", [*weights[:, 0], wide.data[0, 0, 0]], rows, ["k1", "k2"]))
print("one head reads", out.data[0, 0].round(6))

# %% [markdown]
r"""
## 5 Move the query

The query's last feature belongs to head 1. Let it run from −2 to 2: head 1's weights move, and head 0's do not notice.
"""

# %%
steps = [-2.0, -1.0, 0.0, 1.0, 2.0]
moved = np.repeat(QUERY, len(steps), axis=1)  # [B, Tq, d], a query for each step
moved[0, :, 3] = steps
_, moved_weights = two_heads.attend(Tensor(moved), Tensor(KEYS))
names = [f"last feature {step:+.0f}" for step in steps]
for h in range(2):
    show(HeatMap(f"Weights of head {h}", moved_weights.data[0, h], names, ["k1", "k2"]))

# %% [markdown]
r"""
## 6 A query of your own

Change the four numbers, run the cell, and see the weights move.
"""

# %%
my_query = [0.0, 1.0, 0.0, 2.0]

out, w = two_heads.attend(Tensor(np.array([[my_query]])), Tensor(KEYS))
heads = ["head 0", "head 1"]
show(HeatMap(f"Weights for the query {my_query}", w.data[0, :, 0], heads, ["k1", "k2"]))
print("output", out.data[0, 0].round(6))

# %% [markdown]
r"""
Three things to try, each with one answer below that the cell checks:

1. Which query gives both keys the weight one half, in both heads?
2. Can head 0 prefer the second key while head 1 keeps its weights?
3. What do features 0 and 2 of the query do to head 1's weights? One of them belongs to head 0, and for the other both keys have a 0.
"""


# %%
def weights_for(*query):
    """The weights of both heads for one query [H, Tk]."""
    return two_heads.attend(Tensor(np.array([[query]])), Tensor(KEYS))[1].data[0, :, 0]


assert (weights_for(0.0, 0.0, 0.0, 0.0) == 0.5).all()  # 1: no key stands out
before, after = weights_for(1.0, 0.0, 0.0, 2.0), weights_for(0.0, 1.0, 0.0, 2.0)
assert after[0, 1] > after[0, 0]  # 2: yes, with (0, 1, 0, 2)
assert (after[1] == before[1]).all()
other = weights_for(9.0, 0.0, 9.0, 2.0)
assert (other[1] == before[1]).all()  # 3: nothing
print("all three hold")
