"""The amdgpu device on an emulated card, as a user of the package meets it."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmkv
from support import needs_libdrm, run
from vmkv.replay import Report, replay
from vmkv.rows import Bytes, Part
from vmkv.trace_formats import Request
from vmkv.traces import read_trace

pytestmark = needs_libdrm


def replayed(device: str, layout: str) -> dict[str, Any]:
    command = ["replay", "--device", device, "--layout", layout, "--limit", "8"]
    report: dict[str, Any] = json.loads(run("vmkv", *command, "--budget", "2GiB", "--json"))
    return report


@pytest.mark.parametrize("layout", ["layer", "token"])
def test_replay_is_as_on_host(layout: str) -> None:
    host, card = replayed("host", layout), replayed("emulated:gfx1201", layout)
    assert card["checks_failed"] == 0
    assert card["checks_done"] == host["checks_done"]
    assert host["checks_copied"] == 0
    assert 0 < card["checks_copied"] < card["checks_done"]
    for name in ("mapped_bytes_peak", "live_bytes_peak", "tokens_written", "bytes_written"):
        assert card[name] == host[name], name


def replayed_under(faults: str) -> Report:
    name = f"emulated:gfx1201?identity=1&window=256GiB&inject={faults}"
    requests = read_trace(limit=8)
    with (
        vmkv.open(name) as device,
        vmkv.Cache(
            device, vmkv.Geometry.preset("qwen3-8b"), budget="1GiB", max_slots=4, max_tokens=8192
        ) as cache,
    ):
        return replay(cache, requests)


@pytest.mark.parametrize(
    ("fault", "mode"),
    [
        ("stale-translation", "never-reuse-addresses"),
        ("late-visibility", "wait-after-map"),
        ("alias-diverges", "no-alias"),
    ],
)
def test_replay_needs_the_safe_mode_of_a_fault(fault: str, mode: str) -> None:
    assert replayed_under(fault).checks_failed > 0
    assert replayed_under(f"{fault}&safe={mode}").checks_failed == 0


@pytest.mark.parametrize("fault", ["transient-enomem", "silent-gtt"])
def test_replay_copes_with_some_faults(fault: str) -> None:
    assert replayed_under(fault).checks_failed == 0


def test_copy_engine_sees_what_the_cpu_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Part, "read", cpu_is_deceived(Part.read))
    requests = [Request(0, 2, 300, 40)]
    with (
        vmkv.open("emulated:gfx1201?vram=1GiB&identity=1") as device,
        vmkv.Cache(device, vmkv.Geometry.preset("qwen3-8b"), budget="256MB") as cache,
    ):
        report = replay(cache, requests)
    assert report.checks_copied > 0
    assert 0 < report.checks_failed <= report.checks_copied
    assert "to the copy engine" in report.failures[0]


def cpu_is_deceived(read: Callable[..., Bytes]) -> Callable[..., Bytes]:
    """The copy engine finds other bytes than the CPU."""

    def deceived(*arguments: Any) -> Bytes:
        rows = read(*arguments)
        return np.invert(rows) if len(arguments) == 5 and arguments[4] else rows

    return deceived


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("emulated:", vmkv.InvalidError, ""),
        ("emulated:gfx9999", vmkv.InvalidError, "gfx1201"),
        ("emulated:gfx1201?kernel=5.0", vmkv.InvalidError, "6.12"),
        ("emulated:gfx1201?commit=later", vmkv.InvalidError, "engine"),
        ("emulated:gfx1201?slabs=some", vmkv.InvalidError, "listed"),
        ("emulated:gfx1201?vram=little", vmkv.InvalidError, "little"),
        ("emulated:gfx1201?inject=silent-gtt,bogus&commit=cs", vmkv.InvalidError, "inject=bogus:"),
        ("emulated:gfx1201?inject=timeline-ignored", vmkv.InvalidError, "kernel=7.2"),
        ("emulated:gfx1201?inject=silent-gtt,ioctl:CTX:1:EPERM", vmkv.DeviceError, "no context"),
        ("amdgpu:/no/such/node", vmkv.DeviceNotFoundError, "/no/such/node"),
        ("amdgpu:/dev/null", vmkv.DeviceNotFoundError, "no DRM device"),
    ],
)
def test_bad_names_are_told(name: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        vmkv.open(name)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kernel", ["6.1", "6.12", "7.2"])
@pytest.mark.parametrize("options", ["", "&slabs=listed", "&commit=bo"])
def test_rows_are_copied_by_the_card(kernel: str, options: str) -> None:
    if options == "&commit=bo" and kernel != "7.2":
        options += "&vm_update=cpu"  # before, nothing tells when page tables are written
    name = f"emulated:gfx1100?vram=1GiB&kernel={kernel}&identity=1{options}"
    geometry = vmkv.Geometry.full(layers=2, heads=8, head_dim=128)
    with (
        vmkv.open(name) as device,
        vmkv.Cache(device, geometry, budget="256MiB", max_tokens=4096) as cache,
    ):
        one, two = cache.open(), cache.open()
        for length in (1, 700, 3000):
            device.wait(cache.step({one: length, two: length}))
        span = one.span()
        past = span.address + span.mapped_tokens * span.token_stride
        nbytes = 3000 * span.row_bytes
        device.fill(one.span(layer=1, tensor="v").address, nbytes, 0x3C003C00)  # two ones in f16
        device.copy(two.span().address, one.span(layer=1, tensor="v").address, nbytes)
        assert (two.span().numpy() == 1).all()
        assert not one.span().numpy().any()
        with pytest.raises(vmkv.AddressError):
            device.fill(past, 4096)
