# Tangled from book/workshop/threads.md
"""Work that is shared out to threads gives what one thread gives."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tinyllm.num import threads
from tinyllm.num.threads import column_sums, in_threads, product
from tinyllm.tensor import Tensor
from tinyllm.xfmr import gelu, layers


@pytest.fixture(autouse=True)
def everything_is_worth_it(monkeypatch):
    monkeypatch.setattr(threads, "WORTH_SHARING", 1)
    monkeypatch.setattr(threads, "LARGE_MATRIX", 100)


def blas_threads():
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("m", [1, 2, 5, 64])
def test_products_and_sums(m, n):
    draw = np.random.default_rng(m)
    a, b = draw.normal(size=(m, 7)), draw.normal(size=(7, 3)).astype(np.float32)
    wanted = np.array(
        [[sum(x * y for x, y in zip(row, col, strict=True)) for col in b.T] for row in a]
    )
    with threadpool_limits(n):
        made = product(a, b)
        sums = column_sums(a)
    assert made.dtype == np.float64
    np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-13)
    np.testing.assert_allclose(sums, [sum(col) for col in a.T], rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [0, 1, 13, 14, 15, 999])
def test_sums_in_pieces(n):
    x = np.random.default_rng(n).normal(size=(n, 7)).astype(np.float32)
    sums = column_sums(x)
    assert sums.dtype == np.float32
    np.testing.assert_allclose(sums, x.astype(np.float64).sum(axis=0), rtol=0, atol=1e-4)


@pytest.mark.parametrize("shape", [(5, 3), (40, 48), (2, 33, 16)])
def test_rows_and_numbers_in_blocks_change_no_bit_in_threads(shape, monkeypatch):
    """LayerNorm and GELU: many blocks in threads, in one thread, and the whole in one block."""
    x = np.random.default_rng(5).normal(size=(2, *shape)).astype(np.float32)
    norm = layers.LayerNorm(shape[-1])
    monkeypatch.setattr(threads, "MANY", 1)

    def found(function, block, n):
        monkeypatch.setattr(threads, "BLOCK", block)
        tensor = Tensor(x[0], requires_grad=True)
        norm.zero_grad()
        with threadpool_limits(n):
            y = function(tensor)
            y.backward(x[1])
        return y.data, tensor.grad, norm.weight.grad, norm.bias.grad

    for function in (norm, gelu.gelu, gelu.gelu_tanh):
        one, two = found(function, 64, 1), found(function, 64, 2)
        for a, b, whole in zip(one, two, found(function, 1 << 20, 1), strict=True):
            assert np.array_equal(a, b)
            if a is not None:
                np.testing.assert_allclose(a, whole, rtol=0, atol=1e-5)


def test_the_caller_s_errstate_holds_in_threads():
    quiet = []
    with threadpool_limits(2), np.errstate(over="ignore"):
        in_threads(lambda _: quiet.append(np.geterr()["over"]), [1, 2], worth_it=True)
    assert quiet == ["ignore"] * 2


def test_a_transposed_product():
    a, b = np.arange(12.0).reshape(4, 3), np.arange(8.0).reshape(4, 2)
    with threadpool_limits(2):
        assert np.array_equal(product(a.T, b), np.einsum("ki,kj->ij", a, b))


@pytest.mark.parametrize(("n", "worth_it", "used"), [(1, True, 1), (2, True, 2), (2, False, 1)])
def test_who_does_the_work(n, worth_it, used):
    """`used` threads with one BLAS thread each, or the caller; afterwards BLAS has its threads back."""
    meet = threading.Barrier(used, timeout=60)
    seen, numbers = set(), []

    def work(part):
        meet.wait()
        seen.add(threading.get_ident())
        numbers.append((part, blas_threads()))

    with threadpool_limits(n):
        before = blas_threads()
        in_threads(work, list(range(2 * used)), worth_it)
        assert blas_threads() == before
    assert len(seen) == used
    assert (threading.get_ident() in seen) == (used == 1)
    assert sorted(part for part, _ in numbers) == list(range(2 * used))
    assert all(number == ({1} if used > 1 else before) for _, number in numbers)


def test_what_the_work_raises_is_raised_and_blas_has_its_threads_back():
    def work(part):
        raise KeyError(part)

    with threadpool_limits(2):
        before = blas_threads()
        with pytest.raises(KeyError):
            in_threads(work, [1, 2], worth_it=True)
        assert blas_threads() == before


def test_without_threadpoolctl_the_caller_does_everything(monkeypatch):
    monkeypatch.setattr(threads, "_blas", lambda: None)
    seen = set()
    in_threads(lambda part: seen.add((part, threading.get_ident())), [1, 2], worth_it=True)
    assert seen == {(1, threading.get_ident()), (2, threading.get_ident())}
    a = np.eye(3)
    assert np.array_equal(product(a, a), a)
    assert np.array_equal(column_sums(a), np.ones(3))


def test_what_is_called_in_the_middle_of_the_work_does_not_wait_for_itself():
    """A finalizer, say, that runs where the lock is held: by a thread of the work, or by the caller."""
    done = []

    def more():
        in_threads(done.append, [1, 2], worth_it=True)

    def outer():
        with threadpool_limits(2):
            in_threads(lambda part: more(), [1, 2], worth_it=True)
            with threads._blas_lock:
                more()

    thread = threading.Thread(target=outer, daemon=True)
    thread.start()
    thread.join(timeout=60)
    assert sorted(done) == [1, 1, 1, 2, 2, 2]


EXIT = """
import atexit, threading, weakref
import numpy as np
from threadpoolctl import threadpool_limits
from tinyllm import MultiHeadAttention, Tensor
from tinyllm.num import threads
from tinyllm.xfmr import fused

threads.WORTH_SHARING = fused.WORTH_SHARING = fused.BLOCK = 1
threadpool_limits(2)
mha, x = MultiHeadAttention(8, 2), Tensor(np.ones((3, 5, 8), np.float32), requires_grad=True)


class Last:
    def __del__(self):
        step("a finalizer")


def step(who):
    x.grad = None
    out = mha(x, x)
    out.backward(np.ones(out.shape, np.float32))
    print(who, threads._blas_threads(), bool(np.array_equal(out.data, first.data)))


first = mha(x, x)
if WARM:
    step("the program")
last = Last()
atexit.register(step, "atexit")
weakref.finalize(last, step, "weakref")
"""


@pytest.mark.parametrize("warm", [True, False])
def test_work_at_the_interpreter_s_end_is_the_caller_s(warm):
    done = subprocess.run(
        [sys.executable, "-c", EXIT.replace("WARM", str(warm))],
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    said = done.stdout.splitlines()
    assert sorted(said) == sorted(
        f"{who} 2 True" for who in ["atexit", "weakref", "a finalizer", *["the program"] * warm]
    )


FORK = """
import os, sys
import numpy as np
from threadpoolctl import threadpool_limits
from tinyllm.num import threads

threads.WORTH_SHARING = 1
with threadpool_limits(2):
    a = np.eye(4)
    threads.product(a, a)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(threads.product(a, a), a) else 3)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_makes_threads_of_its_own():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], timeout=60, check=False)
    assert done.returncode == 0
