"""What is recorded of a replay, its picture, and the live view."""

import io
import itertools
import json
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import click.testing
import pytest
from rich.console import Console

import vmkv
from vmkv import live, recorder
from vmkv.commands import main
from vmkv.plan import contiguous_bytes, paged_bytes
from vmkv.recorder import Recorder, Sample
from vmkv.replay import Report, replay
from vmkv.replay_picture import draw, make_bars
from vmkv.serving import CHUNK_TOKENS
from vmkv.svg import Text, text_width
from vmkv.traces import Request, read_trace

SVG = "{http://www.w3.org/2000/svg}"
COUNTS = ((300, 9), (20, 30), (900, 2), (700, 40), (1500, 3), (40, 60), (650, 10))
MODELS = ("qwen3-8b", "gpt-oss-20b", "qwen3.5-9b")  # full, with windows, with states


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "small.csv"
    lines = [f"{i},{prompt},{output}" for i, (prompt, output) in enumerate(COUNTS)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]) + "\n")
    return path


class Run:
    """A replay with its recorder, and what was true after each step."""

    def __init__(self, trace: Path, model: str = "gpt-oss-20b", **options: Any) -> None:
        self.requests: list[Request] = list(read_trace(trace))
        self.steps: list[vmkv.stats.Stats] = []
        self.frames: list[str] = []
        chosen: dict[str, Any] = {"budget": "512MiB", "max_slots": 4, "max_tokens": 2048}
        geometry = vmkv.Geometry.preset(model)
        with (
            vmkv.open("host") as device,
            vmkv.Cache(device, geometry, **(chosen | options)) as cache,
        ):
            self.recorder = Recorder(cache)
            self.report = replay(cache, self.requests, progress=self._look, recorder=self.recorder)
            assert self.report.checks_failed == 0
            self.bars = (
                make_bars(self.recorder, self.report, self.recorder.peak)
                if self.recorder.peak
                else []
            )
            self.drawing = draw(self.recorder, self.report, model, "small.csv")

    def _look(self, report: Report) -> None:
        stats = self.recorder.stats
        assert stats is not None
        assert self.recorder.steps == report.steps
        self.steps.append(stats)


# ---- what is recorded


@pytest.mark.parametrize("layout", ["layer", "token"])
@pytest.mark.parametrize("model", MODELS)
def test_peak(trace: Path, model: str, layout: str) -> None:
    run = Run(trace, model, layout=layout)
    peak = run.recorder.peak
    assert peak is not None
    live_bytes = [stats.live_bytes for stats in run.steps]
    assert peak.stats.live_bytes == run.report.live_bytes_peak == max(live_bytes)
    assert peak.step == live_bytes.index(max(live_bytes)) + 1
    assert peak.stats == run.steps[peak.step - 1]
    assert len(peak.shares) == peak.stats.sequences > 1
    assert sum(share.live_bytes for share in peak.shares) == peak.stats.live_bytes
    assert sum(share.mapped_bytes for share in peak.shares) == peak.stats.mapped_bytes
    for share in peak.shares:
        prompt, output = COUNTS[share.request]
        assert 0 < share.tokens <= prompt + output
        assert 0 < share.chunk_tokens <= CHUNK_TOKENS


@pytest.mark.parametrize("layout", ["layer", "token"])
def test_what_is_still_warm_behind_an_agent_is_not_its(trace: Path, layout: str) -> None:
    """The third request gets the first one's slot, and at the peak it has not yet grown into all
    of the memory there, that of the windows included: no window has lost its front."""
    lines = ("0,250,0", "1,1536,0", "2,100,150")
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]) + "\n")
    run = Run(trace, layout=layout, max_slots=2, slot_count=2)
    peak = run.recorder.peak
    assert peak is not None
    assert [(share.request, share.tokens) for share in peak.shares] == [(1, 1536), (2, 101)]
    assert sum(share.mapped_bytes for share in peak.shares) == peak.stats.mapped_bytes


def test_samples_are_all_steps_if_there_are_few(trace: Path) -> None:
    run = Run(trace)
    assert run.recorder.stride == 1
    assert run.recorder.samples == [
        Sample(
            step,
            stats.live_bytes,
            stats.mapped_bytes,
            stats.warm_bytes,
            stats.retiring_bytes + stats.unmapping_bytes + stats.zeroing_bytes + stats.held_bytes,
        )
        for step, stats in enumerate(run.steps, 1)
    ]


def test_samples_are_thinned_out(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_SAMPLES", 8)
    run = Run(trace)
    stride, samples = run.recorder.stride, run.recorder.samples
    assert stride & (stride - 1) == 0
    assert stride > 1
    assert len(samples) == -(-len(run.steps) // stride) < 16
    for number, sample in enumerate(samples):
        of = run.steps[number * stride : (number + 1) * stride]
        assert sample.live_bytes == max(stats.live_bytes for stats in of)
        assert number * stride < sample.step <= (number + 1) * stride
    assert max(sample.live_bytes for sample in samples) == run.report.live_bytes_peak


def test_steps_passed_over_have_samples(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sample a stretch of steps, whether they were taken or not."""
    monkeypatch.setattr(recorder, "_SAMPLES", 8)
    header = "session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms"
    trace.write_text(f"{header}\n0,0,0,0,20,5,20000000\n0,0,1,25,9,2,0\n")
    looked = Run(trace)
    stride, samples = looked.recorder.stride, looked.recorder.samples
    assert looked.recorder.steps == looked.report.steps == 6 + 1_000_000 + 3
    assert len(samples) == -(-looked.report.steps // stride) < 16
    assert [(sample.step - 1) // stride for sample in samples] == list(range(len(samples)))
    assert len({sample.live_bytes for sample in samples[1:-1]}) == 1


# ---- bars


@pytest.mark.parametrize("model", MODELS)
def test_sums_of_bars(trace: Path, model: str) -> None:
    run = Run(trace, model)
    contiguous, paged, own = run.bars
    peak, budget = run.recorder.peak, run.report.budget_bytes
    assert peak is not None
    assert own.sum_bytes("live") == run.report.live_bytes_peak
    assert own.sum_bytes("live", "empty") == peak.stats.mapped_bytes
    assert own.sum_bytes("warm") == peak.stats.warm_bytes
    assert sum(piece.bytes for piece in own.pieces) == budget
    assert sum(piece.bytes for piece in paged.pieces) == budget
    geometry = vmkv.Geometry.preset(model)
    assert paged.sum_bytes("live", "empty") == sum(
        paged_bytes(geometry, share.tokens, share.chunk_tokens) for share in peak.shares
    )
    agent_bytes = contiguous_bytes(geometry, 2048, CHUNK_TOKENS)
    fitting = budget // agent_bytes
    assert contiguous.sum_bytes("live", "empty") == min(fitting, 4) * agent_bytes
    assert contiguous.sum_bytes("misfit") == max(4 - fitting, 0) * agent_bytes
    assert min(piece.bytes for bar in run.bars for piece in bar.pieces) >= 0


def test_agents_that_do_not_fit(trace: Path) -> None:
    """qwen3-8b: 288 MiB for 2,048 tokens."""
    run = Run(trace, "qwen3-8b", budget="700MiB")
    contiguous = run.bars[0]
    assert contiguous.summary == "4 agents would take 1.12 GiB: 2 fit"
    assert [piece.owner for piece in contiguous.pieces if piece.kind == "misfit"] == [3, 4]
    assert [piece.owner for piece in contiguous.pieces if piece.kind == "live"] == [1, 2]
    assert contiguous.sum_bytes("free") == 0


# ---- the picture


def check_room(run: Run) -> None:
    """All is within the picture, no two texts overlap, and a text that is on a bar is within it."""
    root = ElementTree.fromstring(run.drawing.svg())
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    boxes = []
    for shape in run.drawing.shapes:
        if isinstance(shape, Text):
            length = text_width(shape.text, shape.size)
            x = shape.x - {"start": 0.0, "middle": length / 2, "end": length}[shape.anchor]
            boxes.append((x, shape.y - 0.75 * shape.size, x + length, shape.y + 0.1 * shape.size))
    rects = []
    for rect in list(root.iter(f"{SVG}rect"))[1:]:
        x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        rects.append((x, y, x + w, y + h))
    for box in boxes + rects:
        assert -0.01 <= box[0] <= box[2] <= width + 0.01, box
        assert 0 <= box[1] <= box[3] <= height, box
    for one, other in itertools.combinations(boxes, 2):
        assert apart(one, other), (one, other)
    for one, other in itertools.product(boxes, rects):
        inside = (
            other[0] <= one[0] and one[2] <= other[2] and other[1] <= one[1] and one[3] <= other[3]
        )
        assert inside or apart(one, other), (one, other)


def apart(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": "qwen3-8b", "budget": "300MiB"},
        {"model": "qwen3-8b", "budget": "700MiB", "max_tokens": 16000},
        {"budget": "3GiB", "max_slots": 1, "max_tokens": 2000},
        {"max_slots": 7, "layout": "token", "page": "2MiB"},
    ],
)
def test_pictures_have_room(trace: Path, options: dict[str, Any]) -> None:
    check_room(Run(trace, **options))


def test_many_agents_have_room(trace: Path) -> None:
    lines = [f"{i},{i % 7 + 1},{i % 5}" for i in range(300)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]) + "\n")
    run = Run(trace, max_slots=300, max_tokens=64, budget="1GiB", page="4KiB")
    check_room(run)
    peak = run.recorder.peak
    assert peak is not None
    more = f"and {len(peak.shares) - 23:,} more"
    assert more in [shape.text for shape in run.drawing.shapes if isinstance(shape, Text)]


def test_marks(trace: Path) -> None:
    run = Run(trace, "qwen3-8b", budget="700MiB")
    root = ElementTree.fromstring(run.drawing.svg())
    assert root.findtext(f"{SVG}title") == "The card when most memory was live"
    for bar in run.bars:
        assert f"{bar.name}: {bar.summary}" in (root.findtext(f"{SVG}desc") or "")
    texts = [text.text for text in root.iter(f"{SVG}text")]
    for text in ("reserve 2,048 tokens (modelled)", "vmkv (measured)", "budget 700 MiB"):
        assert text in texts
    rects = [rect for rect in root.iter(f"{SVG}rect") if list(rect)]
    assert sum(rect.get("stroke-dasharray") is not None for rect in rects) == 2
    # Bars are of one scale, and the areas are those of what there was.
    own = [rect for rect in rects if rect.attrib["y"] == rects[-1].attrib["y"]]
    live_width = sum(
        float(rect.attrib["width"]) for rect in own if rect.get("class", "").startswith("f-blue")
    )
    whole = sum(float(rect.attrib["width"]) for rect in own)
    peak = run.report.live_bytes_peak
    assert live_width / whole == pytest.approx(peak / run.report.budget_bytes, abs=1e-3)
    areas = list(root.iter(f"{SVG}polygon"))
    assert [area.findtext(f"{SVG}title") for area in areas][:2] == [
        "live: rows of tokens",
        "taken but empty",
    ]
    points = [tuple(map(float, p.split(","))) for p in areas[0].attrib["points"].split()]
    highest, lowest = min(y for _, y in points), max(y for _, y in points)
    assert (lowest - highest) / 180 == pytest.approx(peak / run.report.budget_bytes, abs=1e-3)


def test_nothing_served(trace: Path) -> None:
    run = Run(trace, max_tokens=10)
    assert run.report.requests == 0
    assert run.drawing.about.endswith("No request was served.")
    check_room(run)


# ---- the command


def invoke(*arguments: str | Path) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, ["replay", *map(str, arguments)])


OPTIONS = ("--model", "gpt-oss-20b", "--budget", "256MiB", "--agents", "2", "--max-tokens", "2048")


def test_command_draws(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "card.svg"
    result = invoke(trace, *OPTIONS, "--json", "--picture", path)
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert f"step {report['steps']:,}" in texts
    assert texts[1].startswith("small.csv on host: gpt-oss-20b, layer layout")


def test_command_draws_png(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    from matplotlib.image import imread

    path = tmp_path / "card.png"
    result = invoke(trace, *OPTIONS, "--picture", path)
    assert result.exit_code == 0, result.stderr
    assert imread(path).shape[1] == 2 * 760


def test_other_pictures_are_refused_at_once(trace: Path) -> None:
    result = invoke(trace, *OPTIONS, "--picture", "card.gif")
    assert result.exit_code == 2
    assert "ends in .svg or .png" in result.stderr


# ---- the live view


def show(trace: Path, width: int, height: int = 30, **options: Any) -> list[list[str]]:
    """The lines of each frame."""
    frames = []
    with (
        vmkv.open("host") as device,
        vmkv.Cache(
            device, vmkv.Geometry.preset("gpt-oss-20b"), budget="256MiB", max_slots=4
        ) as cache,
    ):
        looking = Recorder(cache)
        requests = list(read_trace(trace))
        view = live.View(looking, len(requests))

        def frame(report: Report) -> None:
            view.report = report
            file = io.StringIO()
            console = Console(
                file=file, width=width, height=height, force_terminal=True, record=True, **options
            )
            console.print(view)
            frames.append(console.export_text().splitlines())

        replay(cache, requests, progress=frame, recorder=looking)
    return frames


@pytest.mark.parametrize("width", [60, 200])
def test_frames(trace: Path, width: int) -> None:
    frames = show(trace, width)
    for lines in frames:
        assert max(map(len, lines)) <= width
        assert lines[0].startswith("replaying ")
        assert len(lines[1]) == min(width, 100)
        assert set(lines[1]) <= set("█▓▒░·")
    fullest = max(frames, key=lambda lines: lines[1].count("█"))
    assert fullest[1].count("█") > 10
    words = " ".join(fullest)
    for word in ("live ", "partly filled ", "warm ", "retiring ", "free "):
        assert word in words
    assert sum(line.startswith("request ") for line in fullest) == 4
    bar = ["█" * 15 + "·"] if width == 200 else []
    [line] = [line for line in frames[0] if line.startswith("request 1 ")]
    assert line.split() == ["request", "1", *bar, "300", "of", "309", "tokens,", "14.1", "MiB"]


def test_frames_fit_in_height(trace: Path) -> None:
    for lines in show(trace, 60, height=8):
        assert len(lines) <= 8


class Nothing:
    """Looks at a replay that has not begun."""

    stats, holdings = None, ()


def show_interrupted(console: Console) -> None:
    with live.show(console, cast(Recorder, Nothing()), 3) as update:
        update(cast(Report, None))
        raise KeyboardInterrupt


def test_live_leaves_the_terminal_as_it_was() -> None:
    """Also when it is interrupted: the cursor is back, and what was shown is gone."""
    file = io.StringIO()
    console = Console(file=file, width=60, height=30, force_terminal=True)

    with pytest.raises(KeyboardInterrupt):
        show_interrupted(console)
    text = file.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_live_draws_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, drawn = [100.0], []
    monkeypatch.setattr("vmkv.live.time.monotonic", lambda: now[0])
    monkeypatch.setattr("vmkv.live.Live.refresh", lambda self: drawn.append(now[0]))
    console = Console(file=io.StringIO(), force_terminal=True)
    with live.show(console, cast(Recorder, Nothing()), 3) as update:
        before = len(drawn)
        for _ in range(1000):
            update(cast(Report, None))
            now[0] += 0.002
        assert 7 <= len(drawn) - before <= 9
