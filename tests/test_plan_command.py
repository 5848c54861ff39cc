"""`vmkv plan`: its options, its tables, its pictures and its exit codes."""

import itertools
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click.testing
import pytest

from vmkv.commands import main
from vmkv.plan import CARD_GIB
from vmkv.svg import text_width

SVG = "{http://www.w3.org/2000/svg}"
DEMAND = ("--agents", "8", "--context", "16000", "--average", "3000")
ARTICLE = ("--bytes-per-token", "0.14MB", "--budget", "10GB", *DEMAND)


def invoke(*arguments: str | Path) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, ["plan", *map(str, arguments)])


def plan(*arguments: str) -> Any:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return json.loads(result.stdout)


def rows(text: str, header: str) -> list[list[str]]:
    """The cells of a table from its header line on, up to an empty line."""
    lines = text.splitlines()
    [start] = [number for number, line in enumerate(lines) if line.split()[:1] == [header]]
    table = itertools.takewhile(str.strip, lines[start:])
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in table]


def test_the_article() -> None:
    result = invoke(*ARTICLE)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert rows(result.stdout, "scheme") == [
        ["scheme", "for 8", "fits", "admits", "wasted"],
        ["reserve 16k", "17.9 GB", "no", "4", "81%"],
        ["reserve 8k", "9.0 GB", "yes", "8", "63%"],
        ["paged", "3.4 GB", "yes", "23", "0.3%"],
        ["vmkv", "3.4 GB", "yes", "23", "<0.1%"],
    ]
    text = " ".join(result.stdout.split())
    assert "140,000 bytes a token, 420 MB an agent of 3,000 tokens" in text
    assert "10 GB of memory: about 71k tokens in all; 8 agents need 3.4 GB at least" in text
    assert "All of it is physical memory" in text
    # 16 slots of 1,069 x 2 MiB
    assert "also reserves 35.9 GB of addresses, with no memory behind them" in text


def test_the_article_as_json() -> None:
    shown = plan(*ARTICLE)
    assert (shown["bytes_per_token"], shown["fixed_bytes"]) == (140_000, 0)
    assert (shown["live_bytes"], shown["budget_tokens"]) == (3_360_000_000, 71_428)
    assert (shown["model"], shown["layout"], shown["cards"]) == (None, "token", [])
    figures = [
        (
            scheme["scheme"],
            scheme["tokens"],
            scheme["reserved_bytes"],
            scheme["fits"],
            scheme["admitted"],
        )
        for scheme in shown["schemes"]
    ]
    assert figures == [
        ("contiguous", 16000, 17_920_000_000, False, 4),
        ("contiguous", 8000, 8_960_000_000, True, 8),
        ("paged", None, 3_368_960_000, True, 23),
        ("vmkv", None, 3_360_161_792, True, 23),
    ]
    assert [scheme["wasted_fraction"] for scheme in shown["schemes"][:2]] == [0.8125, 0.625]
    assert shown["schemes"][2]["wasted_fraction"] < 0.01


def test_defaults_are_the_article_with_qwen3_8b() -> None:
    shown = plan()
    assert shown == plan(
        *(
            "--model",
            "Qwen3-8B",
            "--budget",
            "10GB",
            *DEMAND,
            "--second-cap",
            "8000",
            "--chunk",
            "1",
        )
    )
    assert (shown["model"], shown["bytes_per_token"], shown["layout"]) == (
        "qwen3-8b",
        147_456,
        "layer",
    )
    assert [scheme["admitted"] for scheme in shown["schemes"]] == [4, 8, 22, 22]
    assert rows(invoke().stdout, "scheme")[1:] == [
        ["reserve 16k", "18.9 GB", "no", "4", "81%"],
        ["reserve 8k", "9.4 GB", "yes", "8", "63%"],
        ["paged", "3.5 GB", "yes", "22", "0.3%"],
        ["vmkv", "3.5 GB", "yes", "22", "0.3%"],
    ]


def test_vram_less_weights() -> None:
    shown = plan("--vram", "16GiB", "--weights", "5.5GB")
    assert shown["budget_bytes"] == 17_179_869_184 - 5_500_000_000
    assert shown["schemes"] == plan("--budget", "11679869184")["schemes"]
    assert (shown["vram_bytes"], shown["weights_bytes"]) == (17_179_869_184, 5_500_000_000)
    assert plan("--vram", "16GiB", "--weights", "0")["budget_bytes"] == 17_179_869_184


def test_options_of_vmkv() -> None:
    shown = plan("--page", "2MiB", "--layout", "token", "--read-align", "256")
    # 3,000 rounded up to 256 is 3,072; x 147,456 / 2 MiB = 216 pages
    assert shown["schemes"][3]["agent_bytes"] == 216 * 2_097_152
    assert (shown["page_bytes"], shown["read_align_tokens"]) == (2_097_152, 256)
    text = " ".join(
        invoke("--page", "2MiB", "--layout", "token", "--read-align", "256").stdout.split()
    )
    assert (
        "pages of 2 MiB in an agent's span (token layout), up to a multiple of 256 tokens" in text
    )
    assert "pages of 64 KiB in each of an agent's 72 spans (layer layout)." in " ".join(
        invoke().stdout.split()
    )


def test_windows_say_that_they_are_counted_at_most() -> None:
    shown = " ".join(invoke("--model", "gpt-oss-20b", "--chunk", "512").stdout.split())
    assert "24,576 bytes a token and 3.1 MB fixed" in shown
    # 10,000,000,000 / 24,576 = 406,901
    assert "about 407k tokens in all, what is fixed aside" in shown
    assert "Sliding windows are counted at their most while a step adds 512 tokens" in shown
    assert "Sliding" not in invoke().stdout


def test_what_is_fixed_is_no_more_than_an_agent_has() -> None:
    """An agent of 100 tokens has not filled its windows: 507,904 bytes a token until then."""
    shown = " ".join(invoke("--model", "gemma-3-27b", "--average", "100").stdout.split())
    assert (
        "81,920 bytes a token and 436.2 MB fixed once its windows are full, "
        "50.8 MB an agent of 100 tokens" in shown
    )
    assert "once its windows" not in invoke("--model", "gemma-3-27b").stdout


def test_one_is_singular(tmp_path: Path) -> None:
    one = ("--agents", "1", "--average", "1", "--context", "4", "--second-cap", "1")
    shown = " ".join(invoke("--bytes-per-token", "1", *one, "--budget", "65536").stdout.split())
    assert "1 byte a token, 1 B an agent of 1 token " in shown
    assert "1 agent needs 1 B at least" in shown
    assert "65.5 kB of memory: about 66k tokens in all" in shown
    root = draw(tmp_path, "--bytes-per-token", "1", *one, "--budget", "65536")
    words = " ".join(root.itertext())
    assert "agents of 1 token on average, 4 at most" in words
    assert "vmkv: 1 agent of 65.5 kB" in words
    result = invoke("--budget", "1", *one)
    assert "is less than one agent of 1 token, which" in result.stderr


def test_a_second_cap_below_the_average() -> None:
    result = invoke("--average", "9000")
    assert "reserve 8k: too short for an agent of 9,000 tokens." in result.stdout
    assert rows(result.stdout, "scheme")[2][2:] == ["no", "0", "0%"]


def test_cards() -> None:
    arguments = ("--cards", "--weights", "5.5GB")
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    table = rows(result.stdout, "card")
    assert table[0] == ["card", "for KV", "reserve 16k", "reserve 8k", "paged", "vmkv"]
    assert [row[0] for row in table[1:]] == [f"{gib} GiB" for gib in CARD_GIB]
    # 16 GiB - 5.5 GB = 11.68 GB: / 2.359 = 4.95; / 1.180 = 9.9; / 0.4435 = 26.3
    assert ["16 GiB", "11.7 GB", "4", "9", "26", "26"] in table
    assert "Agents that a card of 8 to 96 GiB admits besides 5.5 GB of weights" in result.stdout
    shown = plan(*arguments)
    assert [card["card_bytes"] for card in shown["cards"]] == [gib << 30 for gib in CARD_GIB]
    for card, row in zip(shown["cards"], table[1:], strict=True):
        assert [str(scheme["admitted"]) for scheme in card["schemes"]] == row[2:]
        assert card["budget_bytes"] == card["card_bytes"] - 5_500_000_000
    # What the budget is doesn't matter to cards.
    assert plan(*arguments, "--budget", "20GB")["cards"] == shown["cards"]


def test_cards_without_weights_say_so() -> None:
    assert "Nothing is left for the model's weights: see --weights." in invoke("--cards").stdout
    assert plan("--cards")["cards"][0]["budget_bytes"] == 8 << 30


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ((), "the default budget of 10 GB is less than one agent"),
        (("--budget", "11GB"), "a budget of 11 GB is less than one agent"),
        (
            ("--vram", "16GB", "--weights", "5GB"),
            "what the weights leave, 11 GB, is less than one agent",
        ),
    ],
)
def test_a_budget_that_holds_no_agent(budget: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """It is wrong usage, and what would be right is said; but cards don't depend on it."""
    large = ("--bytes-per-token", "10MB", *budget)
    result = invoke(*large)
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    # 3,000 x 10,000,000 bytes in pages of 64 KiB: 457,764 of them are 30,000,021,504 bytes.
    remedy = "leave" if "--vram" in budget else "give --budget"
    wrong = (
        f"{said} of 3,000 tokens, which is 30 GB: {remedy} 30.1GB for one with vmkv, "
        f"or 240.1GB for all 8"
    )
    assert line == f"Error: {wrong}"
    assert plan(*large[:2], "--budget", "30.1GB")["schemes"][3]["admitted"] == 1
    assert plan(*large[:2], "--budget", "240.1GB")["schemes"][3]["fits"] is True

    path = tmp_path / "cards.svg"
    result = invoke(*large, "--cards", "--picture", path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"{wrong[0].upper()}{wrong[1:]}." in " ".join(result.stdout.split())
    shown = [row[-2:] for row in rows(result.stdout, "scheme")[1:]]
    assert shown == [["0", "81%"], ["0", "63%"], ["0", "0.3%"], ["0", "<0.1%"]]
    weights = 5_000_000_000 if "--weights" in budget else 0
    admitted = [((gib << 30) - weights) // 30_000_021_504 for gib in CARD_GIB]
    assert [int(row[-1]) for row in rows(result.stdout, "card")[1:]] == admitted
    assert path.exists()
    values = plan(*large, "--cards")
    assert [card["schemes"][3]["admitted"] for card in values["cards"]] == admitted
    assert [scheme["admitted"] for scheme in values["schemes"]] == [0] * 4


def test_prose_leaves_no_blanks_at_the_ends_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in ("40", "80"):
        monkeypatch.setenv("COLUMNS", columns)
        for line in invoke("--model", "gpt-oss-20b", "--cards").stdout.splitlines():
            assert line == line.rstrip()


def test_tables_are_whole_where_it_is_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = invoke("--cards", *ARTICLE).stdout
    monkeypatch.setenv("COLUMNS", "30")
    narrow = invoke("--cards", *ARTICLE).stdout
    for header in ("scheme", "card"):
        assert rows(narrow, header) == rows(wide, header)
    assert "…" not in narrow


# ---- pictures


def draw(tmp_path: Path, *arguments: str) -> ElementTree.Element:
    path = tmp_path / "plan.svg"
    result = invoke(*arguments, "--picture", path)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert "scheme" in result.stdout
    return ElementTree.fromstring(path.read_text(encoding="utf-8"))


def number(element: ElementTree.Element, name: str) -> float:
    return float(element.attrib[name])


def bars(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [rect for rect in root.iter(f"{SVG}rect") if list(rect)]


def texts(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def check_room(root: ElementTree.Element) -> None:
    """No two texts overlap, none lies on a bar or a line, and all is within the picture."""
    width, height = number(root, "width"), number(root, "height")
    boxes = []
    for text in root.iter(f"{SVG}text"):
        x, y, size = (number(text, name) for name in ("x", "y", "font-size"))
        length = text_width(text.text or "", size)
        x -= {"start": 0.0, "middle": length / 2, "end": length}[text.attrib["text-anchor"]]
        boxes.append((x, y - 0.75 * size, x + length, y + 0.1 * size))
    marks = []
    for rect in list(root.iter(f"{SVG}rect"))[1:]:
        x, y = number(rect, "x"), number(rect, "y")
        marks.append((x, y, x + number(rect, "width"), y + number(rect, "height")))
    for line in root.iter(f"{SVG}line"):
        x, y = number(line, "x1"), number(line, "y1")
        marks.append((x, y, number(line, "x2"), number(line, "y2")))
    for box in boxes + marks:
        assert 0 <= box[0] <= box[2] <= width, box
        assert 0 <= box[1] <= box[3] <= height, box
    for one, other in itertools.chain(
        itertools.combinations(boxes, 2), itertools.product(boxes, marks)
    ):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart, (one, other)


def test_picture_by_scheme(tmp_path: Path) -> None:
    root = draw(tmp_path, *ARTICLE)
    assert root.findtext(f"{SVG}title") == "Agents that 10 GB of memory admits"
    shown = bars(root)
    assert [bar.findtext(f"{SVG}title") for bar in shown] == [
        "reserve 16k: 4 agents of 2.2 GB",
        "reserve 8k: 8 agents of 1.1 GB",
        "paged: 23 agents of 421.1 MB",
        "vmkv: 23 agents of 420.0 MB",
    ]
    assert root.findtext(f"{SVG}desc") == (
        "; ".join(bar.findtext(f"{SVG}title") or "" for bar in shown) + "."
    )
    # Lengths are as the numbers, from one line on.
    assert len({bar.attrib["x"] for bar in shown}) == 1
    lengths = [number(bar, "width") for bar in shown]
    assert [length / lengths[0] for length in lengths] == pytest.approx(
        [1, 2, 23 / 4, 23 / 4], 1e-3
    )
    assert len({bar.attrib["fill"] for bar in shown}) == 4
    words = texts(root)
    for text in (
        *("reserve 16k", "4", "8", "23", "8 asked for"),
        *("17.9 GB for 8, 81% wasted", "9.0 GB for 8, 63% wasted"),
    ):
        assert text in words
    check_room(root)


def test_picture_by_card(tmp_path: Path) -> None:
    root = draw(tmp_path, "--cards", "--weights", "5.5GB")
    assert root.findtext(f"{SVG}title") == "Agents that a card admits besides 5.5 GB of weights"
    shown = plan("--cards", "--weights", "5.5GB")
    admitted = [scheme["admitted"] for card in shown["cards"] for scheme in card["schemes"]]
    lengths = [number(bar, "width") for bar in bars(root)]
    assert len(lengths) == 4 * len(CARD_GIB)
    per_agent = lengths[-1] / admitted[-1]
    assert lengths == pytest.approx([per_agent * count for count in admitted], abs=0.02)
    words = texts(root)
    for gib in CARD_GIB:
        assert f"{gib} GiB" in words
    for count in admitted:
        assert f"{count:,}" in words
    legend = [text for text in words if text in ("reserve 16k", "reserve 8k", "paged", "vmkv")]
    assert legend == ["reserve 16k", "reserve 8k", "paged", "vmkv"]
    check_room(root)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--agents", "500000", "--budget", "2GB"),
        ("--agents", "1", "--average", "1", "--context", "1000000", "--budget", "1EB"),
        ("--average", "9000"),
        ("--model", "gemma-3-27b", "--cards", "--weights", "20GB", "--agents", "100"),
        ("--cards", "--agents", "300"),
        ("--cards", "--average", "100", "--weights", "60GB"),
        ("--cards", "--second-cap", "15999", "--context", "15999"),
    ],
)
def test_pictures_have_room(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    check_room(draw(tmp_path, *arguments))


def test_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    from matplotlib.image import imread

    path = tmp_path / "plan.png"
    result = invoke("--cards", "--picture", path)
    assert result.exit_code == 0, result.stderr
    root = draw(tmp_path, "--cards")
    assert imread(path).shape[:2] == (2 * number(root, "height"), 2 * number(root, "width"))


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    """Told before anything is done; what only writing shows comes after the table."""
    result = invoke("--picture", tmp_path / "nowhere" / "plan.svg")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "there is no directory" in result.stderr
    full = tmp_path / "full.svg"
    full.symlink_to("/dev/full")
    result = invoke("--picture", full)
    assert result.exit_code == 1
    assert "wasted" in result.stdout
    assert "full.svg" in result.stderr
    assert len(result.stderr.splitlines()) == 1


# ---- errors


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["--model", "qwen3-8b", "--bytes-per-token", "1MB"], "--model or --bytes-per-token"),
        (["--bytes-per-token", "1MB", "--layout", "layer"], "--layout layer needs --model"),
        (["--budget", "10GB", "--vram", "16GiB", "--weights", "1GB"], "not both"),
        (["--vram", "16GiB"], "--vram needs --weights"),
        (["--weights", "1GB"], "--weights goes with --vram or --cards"),
        (["--weights", "1GB", "--budget", "10GB"], "--weights goes with --vram or --cards"),
        (["--vram", "16GiB", "--weights", "16GiB"], "leave nothing of 17.2 GB of VRAM"),
        (
            ["--average", "16001"],
            "average of 16,001 tokens is more than the context of 16,000: give --context too",
        ),
        (
            ["--context", "2000"],
            "average of 3,000 tokens is more than the context of 2,000: give --average too",
        ),
        (["--context", "2", "--average", "3"], "average of 3 tokens is more than the context of 2"),
        (["--second-cap", "16001"], "more than the context of 16,000: give --context too"),
        (["--budget", "442MB"], "442 MB is less than one agent of 3,000 tokens, which is 442.4 MB"),
        (
            ["--budget", "442MB", "--agents", "1"],
            "442.4 MB: give --budget 443.6MB for one with vmkv",
        ),
        (["--budget", "0"], "less than one agent"),
        (["--budget", "-1GB"], "can't be negative"),
        (["--budget", "17EiB"], "at most"),
        (["--bytes-per-token", "0"], "at least 1 byte"),
        (["--bytes-per-token", "0.1B"], "at least 1 byte"),
        (["--bytes-per-token", "-1"], "can't be negative"),
        (["--bytes-per-token", "0.1EB", "--budget", "16EB", "--average", "1"], "64 bits"),
        (["--agents", "0"], "0"),
        (["--agents", "-8"], "-8"),
        (["--context", "0"], "0"),
        (["--average", "0"], "0"),
        (["--second-cap", "0"], "0"),
        (["--chunk", "0"], "0"),
        (["--read-align", "0"], "0"),
        (["--context", "5000000000"], "5000000000"),
        (["--page", "1MB"], "page is a power of two from 4 KiB to 2 MiB, not 1,000,000 bytes"),
        (["--context", "16k"], "'16k' is not a valid whole number."),
        (["--agents", ""], "'' is not a valid whole number."),
        (["--agents", "600000"], "600000 is not in the range 1<=x<=524288."),
        (["--layout", "flat"], "flat"),
        (["--model", "qwen9"], "qwen9"),
        (["--picture", "plan.gif"], "ends in .svg or .png"),
    ],
)
def test_usage(arguments: list[str], wrong: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert wrong in result.stderr.splitlines()[-1]
    assert result.stdout == ""


def test_a_model_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    shape = {"num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8}
    path.write_text(json.dumps({"model_type": "qwen3", "head_dim": 128, **shape}))
    shown = plan("--model", str(path))
    assert (shown.pop("model"), shown["bytes_per_token"]) == (str(path), 147_456)
    assert shown.items() <= plan("--model", "qwen3-8b").items()


def test_a_model_file_that_tells_nothing_exits_1(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{")
    result = invoke("--model", path)
    assert result.exit_code == 1
    assert "config.json" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_help_has_examples() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert "--context NUMBER " in result.stdout
    assert "vmkv plan --bytes-per-token 0.14MB --budget 10GB" in result.stdout
