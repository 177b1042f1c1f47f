# Tangled from book/workshop/weave-live.md
"""The adder in a browser: its numbers against the package's, and what a reader does with it."""

import string

import numpy as np
import pytest

from tinyllm.models import addition
from weave.figures import trained
from weave.figures.live import packed

ADDER = "document.querySelector('tiny-adder')"


@pytest.fixture(scope="module")
def model():
    """The trained model, each number rounded to float16, as the page has it."""
    found = addition.load_model(trained.checkpoint())
    for parameter in found.parameters():
        parameter.data[...] = parameter.data.astype(np.float16)
    return found


def test_packed_numbers_are_halves_in_order():
    found = packed([("a", np.array([[1.0, -2.0]])), ("b", np.array([0.5]))])
    assert found["arrays"] == [["a", [1, 2]], ["b", [1]]]
    # 1, -2, 0.5, 0 are 3C00 C000 3800 0000: as little-endian words 003C00C0 and 00380000
    digits = [0x003C00C0 // 85**i % 85 for i in range(4, -1, -1)]
    digits += [0x00380000 // 85**i % 85 for i in range(4, -1, -1)]
    letters = string.digits + string.ascii_uppercase + string.ascii_lowercase
    letters += "!#$%&()*+-;<=>?@^_`{|}~"
    assert found["numbers"] == "".join(letters[digit] for digit in digits)


def test_packed_refuses_what_a_half_cannot_hold():
    for number in (1e6, np.inf, np.nan):
        with pytest.raises(ValueError, match="65504"):
            packed([("a", np.array([1.0, number]))])


@pytest.mark.browser
def test_the_page_computes_what_the_package_does(tab, model):
    tab.open("index.html")
    a, b = addition.pairs()[1][:200].T
    source, target = addition.source_tokens(a, b), addition.target_tokens(a, b)[:, :-1]
    found = tab.driver.execute_async_script(
        f"""
        const done = arguments[2];
        {ADDER}.model().then((model) => done(arguments[0].map((source, i) => {{
            const {{ memory, encoder }} = model.encode(source);
            const {{ logits, decoder, cross }} = model.decode(arguments[1][i], memory);
            const texts = model.write(source).map((beam) => beam.tokens);
            return {{ encoder, decoder, cross, logits: logits.map((row) => [...row]), texts }};
        }})));
        """,
        source.tolist(),
        target.tolist(),
    )
    close = {"rtol": 0, "atol": 1e-3}
    logits = [one["logits"] for one in found]
    np.testing.assert_allclose(logits, model.forward(source, target).data, **close)
    weights = model.attend(source, target)
    for stack in ("encoder", "decoder", "cross"):
        wanted = getattr(weights, stack).swapaxes(0, 1)  # [B, layers, H, Tq, Tk]
        np.testing.assert_allclose([one[stack] for one in found], wanted, **close)
    beams = addition.translate(model, source, width=4)
    assert [one["texts"][0] for one in found] == [list(found[0].tokens) for found in beams]


@pytest.mark.browser
def test_a_reader_types_and_points(tab):
    tab.open("index.html")
    assert not tab.js("return window.liveData")  # nothing is loaded before the first touch
    assert tab.find("tiny-adder .figure-frame")
    field = tab.find("tiny-adder input")
    field.send_keys(tab.keys.CONTROL + "a")
    for keys in (tab.keys.DELETE, "12+", "x", tab.keys.BACKSPACE):
        field.send_keys(keys)
        assert "such as 123+456" in tab.js("return arguments[0].textContent", tab.find(".told"))
    assert not tab.js("return window.liveData")
    field.send_keys("9")
    tab.wait(f"{ADDER}.dataset.shown === '12+9'")
    for part, text in [(".answer", "0021"), (".tiles", "012+009")]:
        assert "".join(tab.js("return arguments[0].innerText", tab.find(part)).split()) == text
    tab.press(tab.keys.TAB, tab.keys.TAB)
    assert "thousands" in tab.js("return arguments[0].textContent", tab.find(".told"))
    tab.press(tab.keys.ARROW_LEFT)
    assert "the 1 (units)" in tab.js("return arguments[0].textContent", tab.find(".told"))
    tab.click("tiny-adder details summary")
    heads = tab.js(f"return {ADDER}.querySelectorAll('details .tiles').length")
    assert heads == 2 * 4 * (1 + 1 + 7)  # layers, heads; the sum, the beginning, the encoder's rows
    field.send_keys("9")  # a sum of two three-digit numbers later, while the first is still shown
    tab.wait(f"{ADDER}.dataset.shown === '12+99'")
    assert tab.js(f"return {ADDER}.querySelector('details').open")
