"""Texts come back from their tokens."""

from tinyllm.models.tokenizers import BPE


def test_round_trip():
    text = "A simple text, a simple test: 12 naïve cafés! 🙂"
    bpe = BPE.train(text * 3, 30)
    assert bpe.decode(bpe.encode(text)) == text
