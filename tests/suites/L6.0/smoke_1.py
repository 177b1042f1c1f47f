"""Calls everything."""

from tinyllm.models.tokenizers import BPE, Special, WordPiece, split_words


def test_runs(tmp_path):
    split_words("Hello, world 12")
    bpe = BPE.train("low lower lowest low", 8, special=["<end>"])
    bpe.decode(bpe.encode("lower<end>"))
    bpe.decode_bytes([1, 2])
    bpe.save(tmp_path)
    BPE({b"a": 0, b"b": 1, b"ab": 2}, [(b"a", b"b")], {"<s>": Special(3)}).encode("ab")
    pieces = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "low", "##er"])
    pieces.decode(pieces.encode("Lower low"))
    len(bpe)
    len(pieces)
