"""Asks for types and lengths."""

from tinyllm.models.tokenizers import BPE, WordPiece, split_words


def test_kinds():
    bpe = BPE.train("the cat and the hat", 5)
    assert len(bpe) == 261
    ids = bpe.encode("the hat")
    assert all(isinstance(i, int) for i in ids)
    assert 0 < len(ids) <= 7
    assert isinstance(bpe.decode(ids), str)
    assert len(split_words("a b")) == 2
    assert isinstance(WordPiece(["[UNK]", "a"]).encode("a b"), list)
