"""Opening devices in safe modes."""

import warnings
from typing import Any

import pytest

import vmkv
from support import needs_libdrm
from vmkv import doctor, drm
from vmkv._names import DeviceName
from vmkv.safety import MODES, safe_name

CARD = "emulated:gfx1201?vram=1GiB"


@needs_libdrm
@pytest.mark.parametrize(
    ("inject", "modes"),
    [
        ("", ()),
        ("stale-translation", ("never-reuse-addresses",)),
        ("late-visibility", ("wait-after-map",)),
        ("alias-diverges", ("no-alias",)),
        ("silent-gtt", ()),
        ("transient-enomem", ()),
        ("vram-stolen", ()),
        ("alias-diverges,stale-translation", ("never-reuse-addresses", "no-alias")),
    ],
)
def test_a_card_is_opened_in_the_modes_that_it_needs(inject: str, modes: tuple[str, ...]) -> None:
    name = f"{CARD}&inject={inject}" if inject else CARD
    with vmkv.open(name, safety="auto") as device:
        assert device.safe_modes == modes
        assert (device.info.wait_after_map_us >= 2000) == ("wait-after-map" in modes)
    with vmkv.open(name) as device:
        assert device.safe_modes == ()  # a card that is emulated is as asked for


@needs_libdrm
@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ("inject=unmap-ignored", vmkv.UnsupportedError, "probe unmap failed (unmap-ignored"),
        ("inject=device-lost", vmkv.DeviceLostError, "device-lost"),
        ("kernel=7.2&inject=timeline-ignored&commit=bo", vmkv.UnsupportedError, "probe timeline"),
        ("inject=late-visibility&commit=engine", vmkv.UnsupportedError, "late-visibility"),
        ("inject=late-visibility&late_us=200000", vmkv.UnsupportedError, "late-visibility"),
        ("inject=nonsense", vmkv.InvalidError, "nonsense"),
    ],
)
def test_a_card_that_is_not_trusted(options: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        vmkv.open(f"{CARD}&{options}", safety="auto")
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


@needs_libdrm
def test_a_timeline_that_is_ignored_harms_no_other_commit() -> None:
    with vmkv.open(f"{CARD}&kernel=7.2&inject=timeline-ignored", safety="auto") as device:
        assert device.safe_modes == ()


@needs_libdrm
@pytest.mark.parametrize("safety", ["auto", "none", ("no-alias",)])
def test_letters_that_are_none_are_told(safety: Any) -> None:
    """Bytes of the command line that aren't UTF-8."""
    with pytest.raises(vmkv.InvalidError, match="it takes a size"):
        vmkv.open("emulated:gfx1201?vram=\udce9", safety=safety)


@pytest.mark.parametrize("modes", [(), *((mode,) for mode in MODES), MODES])
def test_modes_as_asked_for(modes: tuple[str, ...]) -> None:
    with vmkv.open("host", safety=modes) as device:
        assert device.safe_modes == modes


def test_modes_of_the_name_stay() -> None:
    assert safe_name("host?safe=no-alias", ["never-reuse-addresses"]) == (
        "host?safe=never-reuse-addresses,no-alias"
    )
    with pytest.raises(vmkv.InvalidError, match="nonsense"):
        vmkv.open("host?safe=nonsense", safety=["no-alias"])


@needs_libdrm
@pytest.mark.parametrize(
    "options", ["safe=", "safe=no-alias,", "safe=,no-alias", "safe=no-alias&safe=no-alias"]
)
@pytest.mark.parametrize("safety", ["auto", "none", ("no-alias",)])
def test_malformed_modes_are_told_whoever_adds_some(options: str, safety: Any) -> None:
    with pytest.raises(vmkv.InvalidError, match="safe"):
        vmkv.open(f"{CARD}&inject=alias-diverges&{options}", safety=safety)


@needs_libdrm
@pytest.mark.parametrize(("given", "used"), [(100_000, 100_000), (1, 4000)])
def test_a_wait_of_the_name_stays_if_it_is_long_enough(given: int, used: int) -> None:
    name = f"{CARD}&inject=late-visibility&safe=wait-after-map&wait_us={given}"
    with vmkv.open(name, safety="auto") as device:
        waits = device.info.wait_after_map_us
        assert waits == used if given > 1 else waits >= used


@pytest.mark.parametrize(
    "safety", ["", "yes", "no-alias", ["nonsense"], ("auto",), 0, True, b"auto", [None], object()]
)
def test_bad_safety_is_told(safety: object) -> None:
    with pytest.raises(vmkv.InvalidError, match="never-reuse-addresses"):
        vmkv.open("host", safety=safety)  # type: ignore[arg-type]


@needs_libdrm
def test_the_card_that_was_examined_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = doctor.Verdict(True, ("no-alias",))
    report = doctor.Report("amdgpu:/dev/dri/renderD129", doctor.look(), verdict=verdict)
    monkeypatch.setattr(doctor, "examine", lambda name: report)
    name = "amdgpu:/dev/dri/renderD129?slabs=listed&safe=no-alias"
    assert safe_name("amdgpu?slabs=listed") == name


def test_auto_takes_no_modes() -> None:
    with pytest.raises(vmkv.InvalidError, match="name the device"):
        vmkv.open("auto", safety=["no-alias"])


def test_auto_is_the_host_without_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drm, "render_nodes", list)
    assert safe_name("auto") == "auto"
    assert safe_name("amdgpu", "none") == "amdgpu"
    with vmkv.open() as device:
        assert device.name == "host"


def test_auto_passes_over_cards_that_are_not_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What isn't amdgpu's goes by in silence; a card that isn't trusted is worth a warning."""
    outcomes: dict[str, DeviceName | Exception] = {
        "/dev/dri/renderD128": vmkv.DeviceNotFoundError("of i915"),
        "/dev/dri/renderD129": vmkv.UnsupportedError("probe unmap failed"),
        "/dev/dri/renderD130": DeviceName("amdgpu", "/dev/dri/renderD130", (("safe", "no-alias"),)),
    }

    def examined(name: DeviceName) -> DeviceName:
        outcome = outcomes[name.place]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(drm, "render_nodes", lambda: list(outcomes))
    monkeypatch.setattr("vmkv.safety._examined", examined)
    with pytest.warns(RuntimeWarning, match="renderD129 isn't used: probe unmap failed"):
        assert safe_name("auto") == "amdgpu:/dev/dri/renderD130?safe=no-alias"
    del outcomes["/dev/dri/renderD129"], outcomes["/dev/dri/renderD130"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert safe_name("auto") == "auto"


def test_auto_is_the_host_where_nobody_may_look_for_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> list[str]:
        raise vmkv.DeviceError("no right to look into /dev/dri", 13)

    monkeypatch.setattr(drm, "render_nodes", refused)
    with pytest.warns(RuntimeWarning, match="no right to look into /dev/dri"):
        assert safe_name("auto") == "auto"


@pytest.mark.parametrize("name", ["host", "auto", "host?memory=1GiB", "nonsense", ""])
def test_what_is_no_card_keeps_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drm, "render_nodes", list)
    assert safe_name(name, "auto") == name
