"""A growth as bare driver calls, with nothing around them, by the kind of device."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vmkv import errors
from vmkv._names import DeviceName
from vmkv._native import ffi, lib
from vmkv._values import array_pointer
from vmkv.bench.ioctls import Counter, Counts
from vmkv.device import Device, amdgpu_info
from vmkv.loads import Plan, Times


class Round(NamedTuple):
    """A plan that was run once."""

    ns: Times  # of each step
    cpu_ns: float  # of all steps, the thread's own time: what else runs here adds nothing to it
    ioctls: Counts  # empty where nobody counts them


# Makes the driver calls of a plan.
Floor = Callable[[Plan], Round]


def _request(plan: Plan) -> Any:
    return ffi.new(
        "struct vmkv_bench_plan *",
        {
            "ranges": array_pointer(plan.ranges, "struct vmkv_bench_range *"),
            "pieces": array_pointer(plan.pieces, "struct vmkv_bench_piece *"),
            "range_count": len(plan.ranges),
            "piece_count": len(plan.pieces),
            "slab_bytes": plan.slab_bytes,
            "slab_count": plan.slabs,
            "step_count": plan.steps,
        },
    )


def host(plan: Plan) -> Round:
    """An mmap a piece, and one a slab. Its CPU time is not taken."""
    times = np.zeros(plan.steps, np.uint64)
    code = lib.vmkv_bench_floor_host(_request(plan), array_pointer(times, "uint64_t *"))
    if code < 0:
        errors.fail(code, "")
    return Round(times, math.nan, {})


class Amdgpu:
    """GEM_VA calls and submissions through libdrm alone, on the device's own handle. What it counts
    is what it times: neither its preparations nor its end."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._counter = Counter(device)

    def __call__(self, plan: Plan) -> Round:
        times = np.zeros(plan.steps, np.uint64)
        request, ret = _request(plan), ffi.new("struct vmkv_bench_amdgpu **")
        code = lib.vmkv_bench_amdgpu_create(self._device._pointer, request, ret)
        if code < 0:
            errors.fail(code, "the bare libdrm calls could not be prepared")
        try:
            with self._counter.during() as ioctls:
                begin = time.thread_time_ns()
                code = lib.vmkv_bench_amdgpu_run(ret[0], array_pointer(times, "uint64_t *"))
                cpu_ns = time.thread_time_ns() - begin
        finally:
            lib.vmkv_bench_amdgpu_destroy(ret[0])
        if code < 0:
            errors.fail(code, "the bare libdrm calls of the plan failed")
        return Round(times, cpu_ns, ioctls)


def floor_for(device: Device) -> Floor | None:
    """The floor of this device; None if there is none for its kind or its options."""
    if DeviceName.parse(device.name).kind == "host":
        return host
    info = amdgpu_info(device)
    if info and not info.listed and info.commit != lib.VMKV_COMMIT_BO:
        return Amdgpu(device)
    return None
