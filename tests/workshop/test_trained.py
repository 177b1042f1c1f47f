# Tangled from book/2-transformer/MS-L5-tests.md
"""MS-L5: what a trained model can do, and where its heads look. Trains for a minute, once."""

import numpy as np
import pytest

from tinyllm.models.addition import exact_match, load_model, pairs, source_tokens, text, translate
from weave.figures import trained

pytestmark = pytest.mark.long

PARTNER = [4, 5, 6, 3, 0, 1, 2]  # the digit of the same place in the other number; the plus itself
PLACES = {"hundreds": (0, 4), "tens": (1, 5), "units": (2, 6)}


@pytest.fixture(scope="module")
def model():
    return load_model(trained.checkpoint())


def test_trained_model_adds(model):
    asked = pairs()[1][:1000]
    assert exact_match(model, asked) >= 0.995
    a, b = asked[:200].T
    beams = translate(model, source_tokens(a, b), width=4)
    right = [
        text(found[0].tokens) == f"{x + y:04d}" for found, x, y in zip(beams, a, b, strict=True)
    ]
    assert sum(right) >= 198


def test_each_digit_reads_its_partner():
    encoder = trained.mean_attention().encoder  # [layers, H, 7, 7]
    best = encoder.max(axis=(0, 1))  # the head that reads a key most, for each query and key
    digits = [0, 1, 2, 4, 5, 6]
    for digit in (1, 2, 5, 6):  # tens and units: nearly all at the partner, in one head
        assert best[digit, PARTNER[digit]] > 0.9, digit
        rivals = [k for k in digits if k not in (digit, PARTNER[digit])]
        assert best[digit, rivals].max() < 0.7  # no other digit is read as much by any head
    for digit in (0, 4):  # hundreds: both numbers' hundreds, and little else
        heads = encoder[-1, :, digit]  # [H, 7]
        head = heads[heads[:, PARTNER[digit]].argmax()]
        assert head[PARTNER[digit]] > 0.3, digit
        assert head[[0, 4]].sum() > 0.8, digit


def test_cross_attention_reads_the_right_places():
    cross = trained.mean_attention().cross.mean(axis=(0, 1))  # [5, 7]
    hundreds, tens, units = (list(PLACES[name]) for name in ("hundreds", "tens", "units"))
    untrained = trained.mean_attention(trained=False).cross.mean(axis=(0, 1))
    for t, own, below in [
        (0, hundreds, tens),
        (1, hundreds, tens),
        (2, tens, units),
        (3, units, []),
    ]:
        digits = [*own, *below]
        elsewhere = [k for k in (0, 1, 2, 4, 5, 6) if k not in digits]
        assert cross[t, digits].sum() > 0.5
        assert cross[t, elsewhere].sum() < 0.15
        assert untrained[t, elsewhere].sum() > 0.25  # so this much is learned
    last = trained.mean_attention().cross[-1].mean(axis=0)
    for t, own in [(0, hundreds), (1, hundreds), (3, units)]:
        assert last[t, own].sum() > 0.5


def test_pictures_differ_from_an_untrained_model():
    after, before = (trained.mean_attention(when) for when in (True, False))
    for weights in before:  # in no head does a key get twice its even share
        allowed = (weights > 0).sum(axis=-1, keepdims=True)
        assert (weights * allowed < 2).all()
    at = np.arange(7)
    partner = [kind.encoder[-1][:, at, PARTNER].max(axis=0) for kind in (before, after)]
    digits = [0, 1, 2, 4, 5, 6]
    assert (partner[1][digits] > 2 * partner[0][digits]).all()
    near = [
        sum(kind.cross.mean(axis=(0, 1))[1, k] for k in (0, 4, 1, 5)) for kind in (before, after)
    ]
    assert 0.5 < near[0] < 0.65  # four keys of seven: "more than half" is no finding
    assert near[1] > near[0] + 0.15
