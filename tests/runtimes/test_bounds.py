"""Nothing beyond a buffer is recorded: not one float, in any kernel, and not the negative window of F3.

`make asan` computes 500 networks under AddressSanitizer; here it is a few of them.
"""

from dataclasses import replace

import numpy as np
import pytest

from support import asan
from veloxseg.errors import ModelError
from veloxseg.model.config import PRESETS
from veloxseg.runtimes.native import bounds, recorder
from veloxseg.runtimes.native.library import built_sets
from veloxseg.runtimes.native.memory import Grid, Job, Span, Vectors
from veloxseg.runtimes.native.runtime import is_built

needs_kernels = pytest.mark.skipif(not is_built(), reason="the kernels were not built: no C compiler")
needs_sanitizer = pytest.mark.skipif(
    not is_built() or asan.sanitizer() is None, reason="gcc has no AddressSanitizer here, or no kernels"
)


def recorded(config, name: str) -> tuple[list[tuple[str, tuple]], Vectors]:
    """Every call of a network, as it was checked, and the vectors of its instruction set."""
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "check", lambda name, arguments, vectors: calls.append((name, arguments)))
        weights = asan.Fitting(head_bias=np.zeros(64 * config.classes, np.float32))
        vectors = asan.Program(config, weights, name).vectors
    return calls, vectors


@needs_kernels
@pytest.mark.parametrize("instructions", built_sets())
@pytest.mark.parametrize("name", ["b", "s", "c"])
def test_every_call_of_a_preset_fits_and_none_would_fit_one_float_less(name, instructions):
    """A feature inside a border may end in zeros that a kernel does not read; only what it reads to the end is cut."""
    config = replace(PRESETS[name], patch=(64, 64, 32), windows=())
    seen: set[str] = set()
    calls, vectors = recorded(config, instructions)
    for kernel, arguments in calls:
        bounds.check(kernel, arguments, vectors)
        for use in bounds.USES[kernel](vectors, *arguments):
            if use.place is None or use.place.first + use.stop < use.place.array.size:
                continue
            seen.add(kernel)
            short = {id(use.place.array): use.place.array.reshape(-1)[:-1]}
            with pytest.raises(ModelError, match=f"`{kernel}` would use"):
                bounds.check(kernel, tuple(_shortened(argument, short) for argument in arguments), vectors)
    plain = set() if set(config.kernel_sizes) - set(bounds.FILTERED) else {"group"}
    assert seen == set(bounds.USES) - plain - {"place"}  # behind whose last line there is a float more


def _shortened(argument, short):
    """An argument with one buffer, wherever it is in it, cut short."""
    if isinstance(argument, np.ndarray):
        return short.get(id(argument), argument)
    if isinstance(argument, Span | Grid | Job):
        return type(argument)(*(_shortened(part, short) for part in argument))
    return argument


@needs_kernels
def test_a_negative_window_is_refused():
    """F3: it made the kernels read in front of their buffers and write behind them, until the process died."""
    with pytest.raises(ModelError, match="`gather` would use small_window = -1"):
        asan.Program(asan.negative_window(), asan.Fitting(head_bias=np.zeros(128, np.float32)))


@needs_sanitizer
@pytest.mark.slow
@pytest.mark.parametrize("name", built_sets())
def test_random_networks_stay_in_their_buffers_and_the_sanitizer_would_see_it(name, tmp_path):
    asan.build(name, tmp_path / "kernels.so")
    done = asan.run(name, tmp_path / "kernels.so", 20, seed=1)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "10 honest, computed" in done.stdout
    proof = asan.run(name, tmp_path / "kernels.so", 1, prove=True)
    assert proof.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in proof.stderr
