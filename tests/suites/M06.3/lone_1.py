"""The first words of the reference program."""

from tinyllm.num.pcg32 import PCG32


def test_words():
    wanted = [0xA15C02B7, 0x7B47F409, 0xBA1D3330, 0x83D2F293, 0xBFA4784B, 0xCBED606E]
    assert PCG32(42, 54).uint32s(6).tolist() == wanted
