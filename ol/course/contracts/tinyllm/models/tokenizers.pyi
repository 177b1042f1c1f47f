# Tangled from book/3-language-models/L6.0-tokens.md
"""L6.0 Text to tokens and back: byte-pair encoding as GPT-2 has it, WordPiece as BERT has it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BPE", "Special", "WordPiece", "split_words"]

BYTE: dict[str, int] = ...
"""The byte that each letter stands for in GPT-2's files, whose readers import this table."""

def split_words(text: str) -> list[str]:
    """GPT-2's cut of a text into words, which joined give the text again; no merge crosses a cut.

    The cut is that of the expression
    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+ with letters and
    numbers as in Python's unicodedata (categories L and N) and spaces as Unicode's White_Space.
    """

@dataclass(frozen=True)
class Special:
    """A token that text is searched for before it is cut; it may swallow the spaces beside it."""

    id: int
    strip_left: bool = False
    strip_right: bool = False

class BPE:
    """Byte-pair encoding on bytes.

    `vocabulary` has a number for each token, `merges` the pairs in order of rank, `special` the
    numbers of special tokens; all are copied, and an iterator will do. `len()` is one more than the
    largest number. `before`, `after` and `prefix_space` may be assigned. ValueError for a merge
    whose parts or result have no number, for a number that two tokens have or that is no int from 0
    to 2**31 - 1, and for an empty special token.
    Source: Sennrich et al. (2016); Radford et al. (2019).
    """

    vocabulary: dict[bytes, int]
    merges: list[tuple[bytes, bytes]]
    special: dict[str, Special]
    before: tuple[int, ...]
    after: tuple[int, ...]
    prefix_space: bool

    def __init__(
        self,
        vocabulary: Mapping[bytes, int],
        merges: Sequence[tuple[bytes, bytes]],
        special: Mapping[str, int | Special] = ...,
    ) -> None: ...
    def __len__(self) -> int: ...
    @classmethod
    def train(cls, text: str, merges: int, special: Sequence[str] = ()) -> BPE:
        """A vocabulary learned from a text: up to `merges` merges, fewer where no pair is left.

        Tokens 0 to 255 are the bytes in GPT-2's order (33 to 126, 161 to 172, 174 to 255, then the
        others ascending), then the merges, then the special tokens. Counted are neighbours inside a
        word, overlapping ones too. Of pairs that occur equally often the one with the smaller tokens
        is merged, left before right. ValueError unless merges is an int of at least 0.
        """

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text, int: in each word the merge of lowest rank first, from the left.

        With `special`, special tokens in the text are found (of several that fit the longest), and
        `before` and `after` are added. `prefix_space` puts a space before a part that begins with none.
        Time grows with the length of a word as n log n. ValueError for a lone surrogate, and for a
        byte that has no token.
        """

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens; what is no UTF-8, such as half a character, becomes U+FFFD.

        Special tokens as they are written. ValueError for a number that is no token.
        """

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of tokens, joined. ValueError for a number that is no token."""

    def save(self, folder: str | Path) -> None:
        """Write vocab.json and merges.txt, as GPT-2 has them, into a folder; special tokens with the rest."""

class WordPiece:
    """BERT's pieces of words: the longest that fits, from the left; `##` begins those inside a word.

    `pieces` in the order of their numbers, also from an iterator, or with them; of these `special` are found in text before
    it is cut, by default [PAD], [UNK], [CLS], [SEP] and [MASK]. With `lower`, text loses capitals and
    accents. Control characters are dropped; ideographs and punctuation marks are words of their own.
    A word of more than 100 characters, or with a rest that no piece fits, is [UNK]. Texts are put
    between [CLS] and [SEP] where the vocabulary has both. ValueError without [UNK], for a number
    that two pieces have or that is no int from 0 to 2**31 - 1, and for an empty special token. Source: Devlin et al. (2019).
    """

    vocabulary: dict[str, int]
    lower: bool
    special: dict[str, Special]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def __init__(
        self,
        pieces: Sequence[str] | Mapping[str, int],
        lower: bool = True,
        special: Mapping[str, int | Special] | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text, int; `special` as for BPE. ValueError for a lone surrogate."""

    def decode(self, ids: Iterable[int]) -> str:
        """The words of tokens with a space between them; [CLS], [SEP] and [PAD] are left out.

        ValueError for a number that is no token.
        """
