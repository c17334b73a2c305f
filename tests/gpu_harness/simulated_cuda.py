"""CUDA without a GPU: what is launched is queued by stream, and runs later, in an order that nobody should rely on.

Tensors on "cuda" are wrappers around host tensors. An operation on them only notes what is to be done, on the stream
that is current; a seeded scheduler does it when somebody waits or asks, one stream or another, in the order of each
stream and of the events between them. So a step that is not ordered after what it reads, a host that reads a copy too
early, a slot that is written before it was read: each has here the effect that a device gives it on a bad day.

A graph is what was queued while it was captured, done again over the same memory. What the driver refuses while a
stream is captured is refused, and a gate that can no longer open, since the host waits for what stands behind it,
closes its window as it does there, and is counted. Operations themselves are the CPU's, and so are their bits.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from kvescrow.gpu_harness import streams_cuda

aten = torch.ops.aten
DEVICE = torch.device("cuda", 0)
UNREAD = 0x5B
"""In every byte of memory that nothing was written to."""
PATIENCE = 500
"""Questions after a step behind a gate, with nothing else to do, after which the gate's window has closed by itself."""
READS_THE_DEVICE = (aten._local_scalar_dense, aten.equal, aten.nonzero, aten.is_nonzero)


class _Tensor(torch.Tensor):
    """A tensor on the simulated device, which torch's own code takes for "meta": it guards that device everywhere."""

    elem: torch.Tensor
    is_cuda = True
    device = DEVICE  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, elem: torch.Tensor) -> _Tensor:
        made: _Tensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            device="meta",
        )
        made.elem = elem
        return made

    def tolist(self) -> Any:
        """As numbers, which the host waits for."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        raise AssertionError(f"{function} on a simulated device that is no longer there")


class _OnMeta(TorchFunctionMode):
    """Ask torch for tensors on "meta" where "cuda" is asked for."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        if function is torch.device:
            return function(*arguments, **(options or {}))
        named = {name: _renamed(value) for name, value in (options or {}).items()}
        if function is torch.tensor and "device" in named:  # which would make an empty one
            device = named.pop("device")
            return torch.tensor(*arguments, **named).to(device)
        return function(*map(_renamed, arguments), **named)


def _renamed(value: Any) -> Any:
    is_device = isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda"))
    return torch.device("meta") if is_device and torch.device(value).type == "cuda" else value


class SimulatedCuda(TorchDispatchMode):
    """The device, its streams, and the host's side of them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draw = random.Random(seed)
        self.streams: list[Stream] = []
        self.default = self.current = Stream(self)
        self.capturing: Stream | None = None
        self.pinned: dict[int, torch.Tensor] = {}
        """By address; kept, so that no other memory has an address of theirs."""
        self.replays = self.windows_lost = self.launched = self.in_vain = 0
        self.seen: set[str] = set()
        """Every operation so far."""
        self.late: list[str] = []
        """What was done for the first time, or captured, while a stream was held: there, a device may be waited for."""

    # --- the order of things ----------------------------------------------------------------------------------------

    def queue(self, name: str, work: Callable[[], object]) -> None:
        """Note work on the current stream; now and then the device gets ahead a little."""
        self.launched += 1
        if name not in self.seen:
            self.first(name)
            self.seen.add(name)
        item = _Item(work)
        if self.capturing is self.current:
            self.current.captured.append(item)
            return
        self.current.items.append(item)
        if self.draw.random() < 0.02:
            self.advance(self.draw.randrange(1, 40))

    def first(self, what: str) -> None:
        """Take note of what a device may have to be waited for."""
        if any(item.is_gate and not item.is_ready() for stream in self.streams for item in stream.items):
            self.late.append(what)

    def advance(self, most: int) -> bool:
        """Do up to `most` pieces of work of streams that can go on; whether there was any."""
        done = False
        for _ in range(most):
            ready = [stream for stream in self.streams if stream.items and stream.items[0].is_ready()]
            if not ready:
                break
            self.draw.choice(ready).items.popleft().do()
            done = True
        return done

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """The host waits."""
        self.refuse_while_capturing("a wait")
        while not holds():
            if not self.advance(8):
                self.lose_windows()

    def lose_windows(self) -> None:
        """The host has waited too long for what stands behind a gate."""
        gates = [stream.items[0] for stream in self.streams if stream.items and stream.items[0].is_gate]
        assert gates, "the host waits for work that nothing can reach"
        for gate in gates:
            gate.is_ready = lambda: True
            self.windows_lost += 1

    def wait_for(self, stream: Stream) -> None:
        """The host waits for all that is on a stream."""
        self.wait_until(lambda: not stream.items)

    def refuse_while_capturing(self, what: str) -> None:
        """As the driver does."""
        if self.capturing is not None:
            raise RuntimeError(f"operation not permitted when stream is capturing: {what}")

    # --- operations -------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = dict(options or {})
        tensors = [each for each in _leaves((arguments, *options.values())) if isinstance(each, torch.Tensor)]
        on_device = any(isinstance(each, _Tensor) for each in tensors)
        # torch makes an index of a list where its tensor is, and past this mode.
        assert all(isinstance(each, _Tensor) or each.device.type == "cpu" for each in tensors), f"{function}: a list"
        device = options.get("device")
        to_device = device is not None and torch.device(device).type != "cpu"
        packet = function.overloadpacket
        if packet is aten.is_pinned:
            return arguments[0].untyped_storage().data_ptr() in self.pinned
        if packet in (aten._pin_memory, aten.pin_memory):
            return self._pinned_copy(arguments[0])
        if not on_device and not to_device:
            return self._on_host(function, arguments, options)
        if packet is aten._to_copy:
            return self._moved(function, arguments[0], options)
        if packet is aten.copy_:
            return self._copied(*arguments)
        if packet in READS_THE_DEVICE:
            self.wait_for(self.current)
            return function(*_mapped(_inner, arguments), **options)
        return self._queued(function, arguments, options)

    def _on_host(self, function: Any, arguments: Any, options: Any) -> Any:
        if not options.pop("pin_memory", False):
            return function(*arguments, **options)
        self.refuse_while_capturing("an allocation of pinned memory")
        made = function(*arguments, **options)
        if function.overloadpacket is aten.empty:
            made.untyped_storage().fill_(UNREAD)
        self.pinned[made.untyped_storage().data_ptr()] = made
        return made

    def _pinned_copy(self, host: torch.Tensor) -> torch.Tensor:
        self.refuse_while_capturing("an allocation of pinned memory")
        made = host.clone()
        self.pinned[made.untyped_storage().data_ptr()] = made
        return made

    def _is_pinned(self, host: torch.Tensor) -> bool:
        return host.untyped_storage().data_ptr() in self.pinned

    def _source(self, host: torch.Tensor, is_asynchronous: bool) -> torch.Tensor:
        """What a copy to the device reads: pinned memory when it runs, other memory as it is now."""
        if self._is_pinned(host) and is_asynchronous:
            return host
        self.refuse_while_capturing("a copy from memory that is not pinned")
        return host.clone()

    def _moved(self, function: Any, source: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        device = torch.device(options.pop("device", None) or source.device)
        dtype = options.get("dtype") or source.dtype
        if device.type == "cpu":
            assert isinstance(source, _Tensor)
            self.wait_for(self.current)
            return source.elem.to(dtype, copy=True)
        made = _empty(torch.empty_like(_inner(source), dtype=dtype))
        read = source.elem if isinstance(source, _Tensor) else self._source(source, options.get("non_blocking", False))
        self.queue(f"copy of {source.dtype} to {dtype}", lambda: made.copy_(read))
        return _Tensor(made)

    def _copied(self, target: torch.Tensor, source: torch.Tensor, is_asynchronous: bool = False) -> torch.Tensor:
        if isinstance(target, _Tensor):
            read = source.elem if isinstance(source, _Tensor) else self._source(source, is_asynchronous)
            self.queue(f"copy of {source.dtype} to {target.dtype}", lambda: target.elem.copy_(read))
            return target
        assert isinstance(source, _Tensor)
        if not (is_asynchronous and self._is_pinned(target)):
            self.wait_for(self.current)
            target.copy_(source.elem)
            return target
        self.queue("copy to the host", lambda: target.copy_(source.elem))
        return target

    def _queued(self, function: Any, arguments: Any, options: Any) -> Any:
        """An operation on the device alone: its views now, its work on the stream."""
        if "device" in options:
            options["device"] = torch.device("cpu")
        options.pop("pin_memory", None)
        inner = _mapped(_inner, arguments)
        named = {name: _mapped(_inner, value) for name, value in options.items()}
        name = f"{function} of {[each.dtype for each in _leaves(inner) if isinstance(each, torch.Tensor)]}"
        returns = function._schema.returns
        if returns and returns[0].alias_info is not None:
            if not returns[0].alias_info.is_write:
                return _mapped(_wrapped, function(*inner, **named))
            self.queue(name, lambda: function(*inner, **named))
            return options["out"] if "out" in options else arguments[0]
        made = _mapped(_empty, self._shapes(function, inner, named))

        def work() -> None:
            for target, result in zip(_leaves(made), _leaves(function(*inner, **named)), strict=True):
                target.copy_(result)

        self.queue(name, work)
        return _mapped(_wrapped, made)

    @staticmethod
    def _shapes(function: Any, inner: Any, named: Any) -> Any:
        def meta(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
            return torch.device("meta") if isinstance(value, torch.device) else value

        return function(*_mapped(meta, inner), **{name: _mapped(meta, value) for name, value in named.items()})


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """A tensor or number, or nested lists and tuples of them, each changed."""
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)([_mapped(change, each) for each in value])
    return change(value)


def _leaves(value: Any) -> Iterator[Any]:
    """The same, one by one."""
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _inner(value: Any) -> Any:
    return value.elem if isinstance(value, _Tensor) else value


def _wrapped(value: Any) -> Any:
    return _Tensor(value) if isinstance(value, torch.Tensor) else value


def _empty(like: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(like.size(), like.stride(), dtype=like.dtype)
    made.untyped_storage().fill_(UNREAD)
    return made


class _Item:
    """Work on a stream; a gate is not ready for a while."""

    def __init__(
        self, work: Callable[[], object], is_ready: Callable[[], bool] = lambda: True, is_gate: bool = False
    ) -> None:
        self.work, self.is_ready, self.is_gate = work, is_ready, is_gate

    def do(self) -> None:
        with _disable_current_modes():
            self.work()


class Stream:
    """As torch.cuda.Stream."""

    def __init__(self, cuda: SimulatedCuda) -> None:
        self.cuda = cuda
        self.items: deque[_Item] = deque()
        self.captured: list[_Item] = []
        cuda.streams.append(self)

    def wait_event(self, event: Event) -> None:
        """What comes later waits for the event, if it was recorded."""
        if event.is_recorded:
            self.items.append(_Item(lambda: None, lambda: event.is_done))

    def synchronize(self) -> None:
        """The host waits."""
        self.cuda.wait_for(self)


class Event:
    """As torch.cuda.Event: one that was never recorded is done."""

    def __init__(self, cuda: SimulatedCuda) -> None:
        self.cuda, self.is_recorded, self.is_done, self.time = cuda, False, False, 0.0

    def record(self, stream: Stream) -> None:
        """Behind all that is on the stream."""
        self.is_recorded, self.is_done = True, False

        def work() -> None:
            self.is_done, self.time = True, time.perf_counter()

        stream.items.append(_Item(work, lambda: True))

    def query(self) -> bool:
        """Whether it is reached; while the host asks, time passes."""
        self.cuda.refuse_while_capturing("a query of an event")
        if self.cuda.advance(self.cuda.draw.randrange(1, 30)):
            self.cuda.in_vain = 0
        elif not self.is_done and self.is_recorded:
            self.cuda.in_vain += 1
            if self.cuda.in_vain > PATIENCE:
                self.cuda.lose_windows()
        return self.is_done or not self.is_recorded

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds."""
        return 1_000 * (other.time - self.time)


class Graph:
    """As torch.cuda.CUDAGraph."""

    def __init__(self, cuda: SimulatedCuda) -> None:
        self.cuda, self.items = cuda, list[_Item]()

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        """On the current stream, which is not the default one."""
        assert self.cuda.current is not self.cuda.default and not self.items
        self.cuda.first("capture")
        self.cuda.capturing = self.cuda.current

    def capture_end(self) -> None:
        """Keep what was queued meanwhile."""
        stream = self.cuda.capturing
        assert stream is self.cuda.current
        self.items, stream.captured, self.cuda.capturing = stream.captured, [], None

    def replay(self) -> None:
        """Queue it again."""
        assert self.items and self.cuda.capturing is None
        self.cuda.replays += 1
        self.cuda.current.items.extend(self.items)


@contextmanager
def simulated_cuda(monkeypatch: pytest.MonkeyPatch, seed: int) -> Iterator[SimulatedCuda]:
    """While this lasts, torch has a CUDA device."""
    cuda = SimulatedCuda(seed)

    @contextmanager
    def stream(chosen: Stream) -> Iterator[None]:
        before, cuda.current = cuda.current, chosen
        try:
            yield
        finally:
            cuda.current = before

    @contextmanager
    def device(_: object) -> Iterator[None]:
        yield

    def synchronize(_: object = None) -> None:
        for each in cuda.streams:
            cuda.wait_for(each)

    def hold(flag: torch.Tensor, microseconds: int) -> None:
        assert cuda._is_pinned(flag) and microseconds > 0
        cuda.current.items.append(_Item(lambda: None, lambda: bool(flag[0]), is_gate=True))

    replaced: dict[str, object] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda _=None: "a simulated device",
        "_lazy_init": lambda: None,
        "Stream": lambda device=None: Stream(cuda),
        "Event": lambda enable_timing=False: Event(cuda),
        "CUDAGraph": lambda: Graph(cuda),
        "stream": stream,
        "device": device,
        "synchronize": synchronize,
        "current_stream": lambda _=None: cuda.current,
        "_sleep": lambda cycles: cuda.current.items.append(_Item(lambda: None, lambda: False, is_gate=True)),
    }
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value)
    # Nothing here has gradients, and wrappers cannot be made in that mode.
    monkeypatch.setattr(torch.inference_mode, "__enter__", lambda _: None)
    monkeypatch.setattr(torch.inference_mode, "__exit__", lambda *_: None)
    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", lambda name=None: "default")
    # Here only what can never come is waited for in vain, which the simulation notices itself.
    monkeypatch.setattr(streams_cuda, "time", SimpleNamespace(monotonic_ns=lambda: 0, sleep=lambda _: None))
    _interpret_kernels(cuda, monkeypatch, hold)
    lifts = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with _OnMeta(), cuda:
            yield cuda
    finally:
        torch._C._set_only_lift_cpu_tensors(lifts)


def _interpret_kernels(cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch, hold: Callable[..., None]) -> None:
    """Launches of kernels are queued too, and interpreted when they run."""
    interpreter = pytest.importorskip("triton.runtime.interpreter", reason="not_run: triton is not installed")
    from kvescrow.gpu_harness.kernels import gates

    monkeypatch.setattr(gates, "hold", hold)
    launch = interpreter.GridExecutor.__call__

    def queued(executor: Any, *arguments: Any, **options: Any) -> None:
        inner, named = _mapped(_inner, arguments), {name: _inner(value) for name, value in options.items()}
        for each in inner:
            assert not isinstance(each, torch.Tensor) or not cuda._is_pinned(each)
        cuda.queue(f"kernel {executor.fn.__name__}", lambda: launch(executor, *inner, **named))

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", queued)
