#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gemmar_fused from PyTorch, without a build step: the forward of a row-parallel linear layer.

    torchrun --nproc-per-node 2 row_parallel.py        compares with torch and times both

As a module it gives Communicator, which stands beside the NCCL communicator of a process group, and
its linear(), which does the work of

    y = torch.nn.functional.linear(x, weight)          # weight [out, in of this rank]
    torch.distributed.all_reduce(y, group=group)
    y = y + bias

docs/example.md lists what to look out for. Needs PyTorch 2.8 or newer with NCCL 2.28 or newer as a
shared library, and libgemmar.so.0 where the loader finds it (LD_LIBRARY_PATH), or its path in GEMMAR_LIB.
"""
import ctypes
import os

import torch
import torch.distributed as dist

_TYPES = {torch.float16: 6, torch.bfloat16: 9}  # gemmarDataType_t


class _Args(ctypes.Structure):
    """gemmarFusedArgs_t"""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("A", ctypes.c_void_p),
        ("B", ctypes.c_void_p),
        ("C", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("M", ctypes.c_int64),
        ("N", ctypes.c_int64),
        ("K", ctypes.c_int64),
        ("lda", ctypes.c_int64),
        ("ldb", ctypes.c_int64),
        ("ldc", ctypes.c_int64),
        ("datatype", ctypes.c_int),
        ("transB", ctypes.c_int),
        ("alpha", ctypes.c_float),
        ("beta", ctypes.c_float),
    ]


def _load():
    lib = ctypes.CDLL(os.environ.get("GEMMAR_LIB", "libgemmar.so.0"))
    pointer, out = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
    for name, arguments in {
        "gemmarCommCreate": [out, pointer, pointer],
        "gemmarCommReserve": [pointer] + [ctypes.c_int64] * 3 + [ctypes.c_int],
        "gemmarCommRegister": [pointer, pointer, ctypes.c_size_t, out],
        "gemmarCommAbort": [pointer],
        "gemmarCommDestroy": [pointer],
        "gemmarCommGetAsyncError": [pointer, ctypes.POINTER(ctypes.c_int)],
        "gemmarMemAlloc": [out, ctypes.c_size_t],
        "gemmarMemFree": [pointer],
        "gemmar_fused_ex": [ctypes.POINTER(_Args), pointer, pointer],
    }.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    for name, argument in {"gemmarGetErrorString": ctypes.c_int, "gemmarGetLastError": pointer}.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = [argument], ctypes.c_char_p
    return lib


def nccl_communicator(group):
    """The ncclComm_t of a process group on the current device, as an integer."""
    device = torch.device("cuda", torch.cuda.current_device())
    backend = group._get_backend(device)
    backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    if not hasattr(backend, "_comm_ptr"):
        raise RuntimeError(f"{type(backend).__name__} of PyTorch {torch.__version__} has no _comm_ptr()")
    nccl = backend._comm_ptr()
    if not nccl:
        raise RuntimeError(
            "the group has no communicator on this device yet: give device_id to "
            "init_process_group(), or run a collective first"
        )
    return nccl


class _Memory:
    """Memory of gemmarMemAlloc() as an array that torch can take."""

    def __init__(self, pointer, count):
        self.__cuda_array_interface__ = {
            "data": (pointer, False),
            "shape": (count,),
            "strides": None,
            "typestr": "<i2",
            "version": 3,
        }


class Communicator:
    """A gemmarComm_t beside the communicator of a process group. Collective, as is close(), which comes
    before destroy_process_group(), and after the last use of graphs that hold calls."""

    def __init__(self, group=None):
        self._lib = _load()
        self._comm = ctypes.c_void_p()
        self._memory = []
        nccl = nccl_communicator(group if group is not None else dist.group.WORLD)
        torch.cuda.synchronize()  # NCCL's calls of this group are over
        self._check(self._lib.gemmarCommCreate(ctypes.byref(self._comm), nccl, None))

    def _check(self, result):
        if result != 0:
            what = self._lib.gemmarGetErrorString(result).decode()
            raise RuntimeError(f"gemmar: {what}: {self._lib.gemmarGetLastError(self._comm).decode()}")

    def reserve(self, rows, weight):
        """Workspace for x of up to `rows` rows. Collective; needed before a graph is captured."""
        n, k = weight.shape
        self._check(self._lib.gemmarCommReserve(self._comm, rows, n, k, _TYPES[weight.dtype]))

    def empty(self, *shape, dtype=torch.bfloat16):
        """An output tensor that peers write directly, valid until close(). Collective."""
        count = 1
        for extent in shape:
            count *= extent
        pointer, handle = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._lib.gemmarMemAlloc(ctypes.byref(pointer), 2 * count))
        self._memory.append(pointer)
        self._check(
            self._lib.gemmarCommRegister(self._comm, pointer, 2 * count, ctypes.byref(handle))
        )
        array = torch.as_tensor(_Memory(pointer.value, count), device="cuda")
        return array.view(dtype).view(shape)

    def linear(self, x, weight, bias=None, out=None):
        """sum over ranks of x [..., in] * weight [out, in]^T, plus bias, on the current stream."""
        n, k = weight.shape
        a = x.reshape(-1, k)
        m = a.shape[0]
        a = a if a.stride(1) == 1 and (m == 1 or a.stride(0) >= k) else a.contiguous()
        b = weight if weight.stride(1) == 1 and weight.stride(0) >= k else weight.contiguous()
        if out is None:
            out = x.new_empty(*x.shape[:-1], n)
        bias = bias.contiguous() if bias is not None else None
        if x.dtype not in _TYPES:
            raise TypeError(f"{x.dtype}: gemmar_fused on GPUs takes float16 and bfloat16")
        for t in (a, b, out) + (() if bias is None else (bias,)):
            if t.dtype != x.dtype or t.device != a.device or t.device.index != torch.cuda.current_device():
                raise TypeError("all tensors have one type, and are on the current device")
        if out.numel() != m * n or not out.is_contiguous() or (bias is not None and bias.numel() != n):
            raise ValueError("out is contiguous with the shape of the result, bias has one element per column")
        args = _Args(
            size=ctypes.sizeof(_Args),
            A=a.data_ptr(),
            B=b.data_ptr(),
            C=out.data_ptr(),
            bias=bias.data_ptr() if bias is not None else None,
            M=m,
            N=n,
            K=k,
            lda=a.stride(0) if m > 1 else k,
            ldb=b.stride(0) if n > 1 else k,
            ldc=n,
            datatype=_TYPES[x.dtype],
            transB=1,
            alpha=1,
            beta=0,
        )
        stream = torch.cuda.current_stream().cuda_stream
        self._check(self._lib.gemmar_fused_ex(ctypes.byref(args), self._comm, stream))
        return out

    def check(self):
        """Raise what has failed on the GPU since; does not wait."""
        error = ctypes.c_int()
        self._check(self._lib.gemmarCommGetAsyncError(self._comm, ctypes.byref(error)))
        self._check(error.value)

    def close(self, healthy=True):
        """Collective. With healthy=False it waits for nobody."""
        if not healthy and self._comm:
            self._lib.gemmarCommAbort(self._comm)
        comm, self._comm = self._comm, ctypes.c_void_p()
        result = self._lib.gemmarCommDestroy(comm)
        if healthy:
            self._check(result)
            while self._memory:
                self._check(self._lib.gemmarMemFree(self._memory.pop()))


class RowParallelLinear(torch.autograd.Function):
    """RowParallelLinear.apply(x, weight, bias, communicator), for training: every rank holds the whole
    gradient of y, so that the backward needs no communication."""

    @staticmethod
    def forward(ctx, x, weight, bias, communicator):
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return communicator.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        flat = grad.reshape(-1, grad.shape[-1])
        grad_bias = flat.sum(0) if ctx.has_bias else None
        return grad @ weight, flat.t() @ x.reshape(-1, x.shape[-1]), grad_bias, None


def torch_linear(x, weight, bias, group=None):
    """What linear() replaces."""
    y = torch.nn.functional.linear(x, weight)
    dist.all_reduce(y, group=group)
    return y + bias if bias is not None else y


def worst(one, other, x, weight, bias):
    """The largest part of its bound that a difference takes; layer_check.c and check.c derive it."""
    ranks, k = dist.get_world_size(), x.shape[-1]
    partials = torch.nn.functional.linear(x, weight).float().abs()
    row, column = x.float().square().sum(-1, keepdim=True), weight.float().square().sum(-1)
    for t in (partials, row, column):
        dist.all_reduce(t)
    if bias is not None:  # torch rounds once more
        partials += bias.float().abs()
        ranks += 1
    bound = 2 * k * 2.0**-24 * (row * column).sqrt() + ((1 + 2.0**-8) ** (ranks + 4) - 1) * partials
    return ((one.float() - other.float()).abs() / bound).nan_to_num(nan=float("inf")).max()


def same_on_all_ranks(y):
    bits = y.view(torch.int16).to(torch.int64)
    place = torch.arange(1, bits.numel() + 1, device=bits.device).view_as(bits)
    total = (bits * place).sum()
    least, most = total.clone(), total.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return bool(least == most)


def microseconds(call, calls=50):
    """Mean of `calls` calls in a row, the largest of all ranks'."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for i in range(-5, calls):
        if i == 0:
            begin.record()
        call()
    end.record()
    end.synchronize()
    us = torch.tensor(begin.elapsed_time(end) * 1000 / calls, device="cuda")
    dist.all_reduce(us, op=dist.ReduceOp.MAX)
    return float(us)


def graph_of(call):
    """A graph of one call, and the tensor that each replay fills."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()  # torch's rule: warm up on a side stream
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call()
    return graph, y


def compare(gemmar, rows, out, inner):
    """One shape: eager, registered output, graph, gradients; times of both ways."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    same = torch.Generator("cuda").manual_seed(1)
    own = torch.Generator("cuda").manual_seed(2 + rank)
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    k = inner // ranks
    x = torch.randn(rows, k, generator=own, **kind)
    weight = torch.randn(out, k, generator=own, **kind) / inner**0.5
    bias = torch.randn(out, generator=same, **kind)
    gemmar.reserve(rows, weight)
    y = gemmar.empty(rows, out)

    found = {}
    want = torch_linear(x, weight, bias)
    found["eager"] = worst(gemmar.linear(x, weight, bias), want, x, weight, bias)
    found["registered"] = worst(gemmar.linear(x, weight, bias, out=y), want, x, weight, bias)

    ours, from_graph = graph_of(lambda: gemmar.linear(x, weight, bias, out=y))
    theirs, _ = graph_of(lambda: torch_linear(x, weight, bias))
    for _ in range(3):  # new contents at the same addresses
        x.normal_(generator=own)
        ours.replay()
        got = worst(from_graph, torch_linear(x, weight, bias), x, weight, bias)
        found["graph"] = torch.maximum(found.get("graph", got), got)

    leaves = [t.detach().clone().requires_grad_() for t in (x, weight, bias)]
    RowParallelLinear.apply(*leaves, gemmar).float().square().sum().backward()
    grad = 2 * gemmar.linear(x, weight, bias).float()
    difference = (leaves[0].grad.float() - grad @ weight.float()).abs().max()
    found["gradient"] = difference / (grad.abs() @ weight.float().abs()).max() / 2.0**-7

    gemmar.check()
    times = [
        microseconds(lambda: torch_linear(x, weight, bias)),
        microseconds(lambda: gemmar.linear(x, weight, bias)),
        microseconds(lambda: gemmar.linear(x, weight, bias, out=y)),
        microseconds(theirs.replay),
        microseconds(ours.replay),
    ]
    gemmar.check()
    equal = same_on_all_ranks(y)
    ours.reset()  # before close()
    theirs.reset()
    right = torch.tensor(int(equal and all(float(v) <= 1 for v in found.values())), device="cuda")
    dist.all_reduce(right, op=dist.ReduceOp.MIN)
    if rank == 0:
        print(f"x [{rows},{inner}], weight [{out},{inner}] by columns over {ranks} ranks, bf16, bias")
        parts = ", ".join(f"{name} {float(value):.2f}" for name, value in found.items())
        print(f"  largest difference as a part of its bound: {parts}; the same bits on all ranks: {equal}")
        print("  us: torch %.1f, gemmar %.1f, registered %.1f; graph: torch %.1f, gemmar %.1f" % tuple(times))
    return bool(right)


def main():
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)  # _comm_ptr() is that of the current device
    options = dist.ProcessGroupNCCL.Options()
    options.config.blocking = 1  # gemmarCommCreate() needs a blocking communicator
    dist.init_process_group("nccl", device_id=device, pg_options=options)
    if dist.get_rank() == 0:
        print(f"PyTorch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    inner = 3584 * dist.get_world_size()  # Llama 3 70B on 8 GPUs
    gemmar = Communicator()
    try:
        right = all([compare(gemmar, rows, 8192, inner) for rows in (4096, 16)])
    except BaseException:
        gemmar.close(healthy=False)
        raise  # torchrun ends the other ranks
    gemmar.close()
    dist.destroy_process_group()
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
