"""Encoding against a naive replay of the merges."""

from tinyllm.models.tokenizers import BPE, split_words


def test_encode():
    bpe = BPE.train("low lower lowest newer wider new low low", 15)
    got, want = [], []
    for word in split_words("lower newest lowlow"):
        parts = [bytes([b]) for b in word.encode()]
        for pair in bpe.merges:
            i = 0
            while i < len(parts) - 1:
                if (parts[i], parts[i + 1]) == pair:
                    parts[i : i + 2] = [parts[i] + parts[i + 1]]
                i += 1
        want += [bpe.vocabulary[p] for p in parts]
    got = bpe.encode("lower newest lowlow")
    assert got == want
