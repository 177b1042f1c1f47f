# Tangled from book/2-transformer/MS-L5-addition.md
"""MS-L5 with 1, 2, 4 and 8 heads and five seeds: what each model learns, needs and looks at.

python tests/bench/measure_heads.py

Twenty trainings, each a minute of one core, ten shorter ones with a single layer, and one that's twice as
long. Each is saved at every hundredth step. When it's done, its row goes into
tinyllm/models/addition/heads.json. Start the script again after a break and it goes on; delete the file to
measure again. `python tangle.py stitch` takes the rows into the chapter.
"""

import json
from pathlib import Path

import numpy as np

from tinyllm.checkpoint import write_atomically
from tinyllm.models.addition import (
    Adder,
    Settings,
    Training,
    exact_match,
    pairs,
    source_tokens,
    target_tokens,
)
from tinyllm.xfmr.mha import MultiHeadAttention

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "heads"
KEPT = ROOT / "tinyllm" / "models" / "addition" / "heads.json"
SETTINGS = [
    Settings(n_layers=n_layers, n_heads=n_heads, seed=seed)
    for n_layers, several in ((2, (1, 2, 4, 8)), (1, (1, 4)))
    for seed in range(5)
    for n_heads in several
] + [Settings(n_heads=1, seed=3, steps=3000)]
EVERY = 100  # steps between two looks
NEAR = [
    (0, 4, 1, 5),
    (0, 4, 1, 5),
    (1, 5, 2, 6),
    (2, 6),
]  # source positions, for each digit written


def train(settings, folder):
    """A run at its end, and the share of 200 held-out sums that were right at every hundredth step."""
    path = folder / "layers-{}-heads-{}-seed-{}-steps-{}.safetensors".format(*key(settings))
    noted = path.with_suffix(".json")
    run, learning = Training(settings), []
    if path.exists():
        run = Training.load(path)
        learning = json.loads(noted.read_text())[: run.step // EVERY]
    asked = pairs()[1][1000:1200]
    while run.step < settings.steps:
        run.advance()
        if run.step % EVERY == 0:
            learning.append(exact_match(run.model, asked))
            write_atomically(noted, [json.dumps(learning).encode()])
            run.save(path)
    return run, learning


def silenced(model, asked):
    """For each attention, the share of right sums without each of its heads, and last without all of them."""
    found = {}
    for path, attention in model.named_modules():
        if isinstance(attention, MultiHeadAttention):
            n, d_head = attention.n_heads, attention.d_head
            heads = [slice(h * d_head, (h + 1) * d_head) for h in range(n)]
            shares = [without(model, attention, part, asked) for part in (*heads, slice(None))]
            found[path.removeprefix("transformer.")] = shares
    return found


def without(model, attention, features, asked):
    """The share of right sums while nothing that these features have read leaves the attention."""
    weight = attention.out_proj.weight
    kept, weight.data = weight.data, weight.data.copy()
    weight.data[:, features] = 0.0
    share = exact_match(model, asked)
    weight.data = kept
    return share


def looks(model, asked):
    """Means of weights over many sums.

    partner: what each encoder head gives, from a digit, to the digit of its place in the other number,
    [layers, H, 3] for hundreds, tens and units. near: what the steps that write the four digits give to
    the digits of their own place and of the place below, over all heads of the cross-attention, [4].
    """
    a, b = asked.T
    seen = model.attend(source_tokens(a, b), target_tokens(a, b)[:, :-1])
    encoder = seen.encoder.mean(axis=1)  # [layers, H, 7, 7]
    pairs_of = [(encoder[..., i, i + 4] + encoder[..., i + 4, i]) / 2 for i in range(3)]
    cross = seen.cross.mean(axis=(0, 1, 2))  # [5, 7]
    near = [cross[t, places].sum() for t, places in enumerate(NEAR)]
    return {"partner": np.stack(pairs_of, axis=-1).tolist(), "near": np.array(near).tolist()}


def key(settings):
    """What tells the trainings apart."""
    return settings.n_layers, settings.n_heads, settings.seed, settings.steps


def row(run, learning):
    """What is kept of a training."""
    asked = pairs()[1][:1000]
    untrained = Adder(run.settings, run.root.substream("parameters"))
    return {
        **dict(zip(("layers", "heads", "seed", "steps"), key(run.settings), strict=True)),
        "right": exact_match(run.model, asked),
        "learning": learning,
        "without": silenced(run.model, asked),
        "trained": looks(run.model, asked),
        "untrained": looks(untrained, asked),
    }


def rounded(value):
    """Numbers to three decimals, in lists and dictionaries too."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return round(value, 3)


def main(settings=SETTINGS, folder=FOLDER, kept=KEPT):
    folder.mkdir(parents=True, exist_ok=True)
    rows = {}
    if kept.exists():
        rows = {tuple(row.values())[:4]: row for row in json.loads(kept.read_text())}
    for s in settings:
        if key(s) not in rows:
            rows[key(s)] = rounded(row(*train(s, folder)))
            print(key(s), rows[key(s)]["right"], flush=True)
            lines = ",\n".join(json.dumps(rows[key(s)]) for s in settings if key(s) in rows)
            write_atomically(kept, [f"[\n{lines}\n]\n".encode()])


if __name__ == "__main__":
    main()
