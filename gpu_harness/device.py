"""A torch device with its streams, and the process settings that exact arithmetic needs on it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kvescrow.gpu_harness.streams import WAIT_LIMIT_MICROSECONDS, Gate, HardwareAbsent, Stream
from kvescrow.gpu_harness.streams_cpu import cpu_gate, cpu_stream
from kvescrow.gpu_harness.streams_cuda import cuda_gate, cuda_stream
from kvescrow.spec.vocabulary import UserError


class Device:
    """A torch device with its compute streams. Open it with `open_device`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.torch_device = torch.device(name)
        self._streams: list[Stream] = []
        self._gates: list[Gate] = []
        self.prefill = self.stream("prefill")
        self.decode = self.stream("decode")

    @property
    def is_cuda(self) -> bool:
        """Whether the streams are CUDA streams."""
        return self.torch_device.type == "cuda"

    def stream(self, name: str) -> Stream:
        """One more stream, closed with the device."""
        stream = cuda_stream(name, self.torch_device) if self.is_cuda else cpu_stream(name)
        self._streams.append(stream)
        return stream

    def gate(self, microseconds: int | None = None) -> Gate:
        """A gate that holds at most `microseconds` (default: a minute on cpu, the longest window on cuda)."""
        if self.is_cuda:
            gate = cuda_gate(self.torch_device, microseconds)
        else:
            gate = cpu_gate(WAIT_LIMIT_MICROSECONDS if microseconds is None else microseconds)
        self._gates.append(gate)
        return gate

    def upload(self, host: torch.Tensor) -> torch.Tensor:
        """Copy a host tensor to the device, ordered on the current stream."""
        if not self.is_cuda:
            return host
        return host.pin_memory().to(self.torch_device, non_blocking=True)

    def download(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy to host memory, ordered on the current stream; valid once an event recorded after it is
        done.
        """
        if not self.is_cuda:
            return tensor.clone()
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        return host

    def synchronize(self) -> None:
        """Block the host until all streams are idle, and the host's own device work. Raises StreamFailed,
        DeviceTimeout.
        """
        for stream in self._streams:
            stream.synchronize()
        if self.is_cuda:
            torch.cuda.synchronize(self.torch_device)

    def close(self) -> None:
        """Open all gates, wait (bounded) for the work in flight and stop all streams."""
        for gate in self._gates:
            gate.open()
        for stream in self._streams:
            stream.close()


def refuse_unknown(name: str, known: str = "cpu, cuda, cuda:N") -> None:
    """Raise UserError where `name` names no device that there could be; `known` says which a user may name."""
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (":" in name and (kind == "cpu" or not number.isdecimal())):
        raise UserError(f"device: {name!r} is not known; choose from {known}")


def lack_of(name: str) -> str:
    """Why the device `name` is not in this machine; empty where it is."""
    if not name.startswith("cuda"):
        return ""
    # Read when the driver starts. With the eight queues that it has by itself, a stream that is held can hold back
    # another one that shares its queue.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    if not torch.cuda.is_available():
        return "no CUDA device is available to torch on this machine; use --device cpu"
    count, (_, _, number) = torch.cuda.device_count(), name.partition(":")
    return f"torch finds {count} CUDA device(s) on this machine, so no {name}" if int(number or 0) >= count else ""


@contextmanager
def open_device(name: str) -> Iterator[Device]:
    """A device with the settings that exact arithmetic needs, restored afterwards.

    `name` is "cpu", "cuda" or "cuda:N". On cpu one thread is pinned, since the split of a product over
    threads changes its bits; on cuda reduced-precision reductions and TF32 are off. Raises HardwareAbsent,
    UserError.
    """
    refuse_unknown(name)
    if lack := lack_of(name):
        raise HardwareAbsent(lack)
    settings = _cuda_settings(name) if name.startswith("cuda") else _pinned_thread()
    with settings:
        device = Device(name)
        try:
            yield device
        finally:
            device.close()


@contextmanager
def _pinned_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _cuda_settings(device: str) -> Iterator[None]:
    # Read by cuBLAS when its handle is made; a fixed workspace keeps the choice of algorithm fixed as well.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "1")
    matmul = torch.backends.cuda.matmul
    reductions = ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")
    before = {name: (getattr(matmul, name), getattr(matmul, f"{name}_split_k")) for name in reductions}
    tf32, library = matmul.allow_tf32, torch.backends.cuda.preferred_blas_library()
    try:
        for name in reductions:
            setattr(matmul, name, (False, False))
        matmul.allow_tf32 = False
        torch.backends.cuda.preferred_blas_library("cublaslt")
        with torch.cuda.device(device):  # triton launches on the current device, whatever its tensors are on
            yield
    finally:
        for name, value in before.items():
            setattr(matmul, name, value)
        matmul.allow_tf32 = tf32
        torch.backends.cuda.preferred_blas_library(library)
