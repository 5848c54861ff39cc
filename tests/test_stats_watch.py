"""`vmkv stats --watch` and --picture: what is where on the card, on a screen and as a picture."""

import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sysconfig
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from published_files import PAGE_BYTES, SLAB_PAGES, Forged
from stats_support import directory, failure, stats
from support import environment
from vmkv import published, stats_live
from vmkv.published import Reader, Snapshot, layout, watching
from vmkv.published.card_map import KINDS, CardMap, live_bytes_by_piece, sizes_of
from vmkv.published.watching import Watched
from vmkv.svg import text_width

__all__ = ["directory"]
PID = os.getpid()
PROGRAM = Path(sysconfig.get_path("scripts"), "vmkv")
WAIT = os.WEXITED | os.WNOHANG | os.WNOWAIT  # the child stays to be waited for


def forged(slabs: int = 2) -> Forged:
    file = Forged(slabs=slabs)
    file.add_sequence(0, 3000)
    file.add_sequence(3, 100)
    return file


def look(directory: Path, file: Forged) -> Snapshot:
    with Reader.open(file.write(directory)) as reader:
        return reader.look(pieces=True)


# ---- the map ------------------------------------------------------------------------------------


def test_live_bytes_of_pieces_are_those_of_the_cache(directory: Path) -> None:
    snapshot = look(directory, forged())
    assert live_bytes_by_piece(snapshot).sum() == snapshot.live_bytes > 0


def test_map_shows_as_much_of_each_kind_as_there_is(directory: Path) -> None:
    file = forged()
    pieces, state = file.sections["piece"][:, 0], file.sections["state"][0, 0]
    wanted = {"warm": layout.PIECE_WARM, "retiring": layout.PIECE_RETIRING}
    for slot, (name, number) in enumerate(wanted.items(), 5):
        for region in range(4):
            first = file.add_piece(slot, region, 0, 64)
            pieces["state"][first] = number
            for record in (file.sections["slot"][slot, 0], file.sections["slab"][0, 0]):
                record["mapped_pages"] -= 64
                record[f"{name}_pages"] += 64
        state["mapped_bytes"] -= 256 * PAGE_BYTES
        state[f"{name}_bytes"] += 256 * PAGE_BYTES
    snapshot = look(directory, file)
    assert published.contradictions(snapshot) == []
    sizes = sizes_of(snapshot)
    assert sum(sizes.values()) == snapshot.number("budget_bytes")
    for columns in (8, 100, SLAB_PAGES, 3000):
        card = CardMap.of(snapshot, columns, 10)
        rows, width = card.cells.shape
        assert (rows, width) == (2, min(columns, SLAB_PAGES))
        shown = np.bincount(card.cells.ravel(), minlength=len(KINDS)) * card.cell_bytes
        for kind, size in zip(KINDS, shown.tolist(), strict=True):
            assert abs(size - sizes.get(kind, 0)) <= rows * card.cell_bytes, (columns, kind)


def test_map_puts_things_where_they_are(directory: Path) -> None:
    file = Forged(slabs=2)
    file.add_piece(0, 0, 0, 256)  # no sequence: mapped, and empty
    card = CardMap.of(look(directory, file), 8, 10)
    free, empty = KINDS.index("free"), KINDS.index("empty")
    assert card.cells.tolist() == [[empty] * 2 + [free] * 6, [free] * 8]
    assert card.first_slabs == [0, 1]


def test_map_leaves_blank_what_is_not_taken(directory: Path) -> None:
    file = forged(slabs=3)
    file.sections["slab"]["bytes"][1, 0] = 0
    file.sections["slab"]["bytes"][2, 0] = SLAB_PAGES // 2 * PAGE_BYTES
    card = CardMap.of(look(directory, file), 4, 10)
    untaken, free = KINDS.index("untaken"), KINDS.index("free")
    assert card.cells[1:].tolist() == [[untaken] * 4, [free] * 2 + [untaken] * 2]


def test_map_of_many_slabs_has_rows_of_several(directory: Path) -> None:
    card = CardMap.of(look(directory, forged(slabs=50)), 10, 8)
    assert card.slabs_per_row == 7
    assert card.first_slabs == [0, 7, 14, 21, 28, 35, 42, 49]


# ---- the screen ---------------------------------------------------------------------------------


def frame(directory: Path, width: int, height: int) -> list[str]:
    with Watched() as watched:
        rows = stats_live.Sampler().look(watched.now())
    lines = stats_live.frame(rows, "Waiting.", width, height, False)
    return [line.plain for line in lines]


def test_frame_tells_which_bytes_are_virtual(directory: Path) -> None:
    forged().write(directory)
    text = "\n".join(frame(directory, 100, 40))
    assert f"{PID}-abcde: forged on host: alive" in text
    assert "physical; reserved 2 GiB of addresses: virtual" in text
    assert "each row slab, each letter 697.2 KiB of physical memory" in text
    assert re.search(r"^ +0 +3,000 +23\.4 MiB +23\.5 MiB", text, re.MULTILINE)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_nothing_is_cut_off_that_says_which_bytes(width: int, directory: Path) -> None:
    forged().write(directory)
    lines = frame(directory, width, 40)
    assert all(len(line) <= width for line in lines)
    text = " ".join(" ".join(lines).split())
    assert "all above: physical; reserved 2 GiB of addresses: virtual" in text
    assert "of physical memory:" in text
    assert "live and mapped: physical" in text
    (row,) = [line for line in lines if "23.4 MiB" in line and "3,000" in line]
    assert ("23.5 MiB" in row) == (width > 45)  # a column is there as a whole, or not at all


@pytest.mark.parametrize("height", [1, 2, 3, 5, 8, 12, 24, 100])
@pytest.mark.parametrize("width", [1, 5, 20, 80, 300])
def test_frame_fits(width: int, height: int, directory: Path) -> None:
    file = forged(slabs=60)
    file.write(directory)
    file.header["tag"] = 7
    file.write(directory)
    (directory / "4194000-00001.kv").write_bytes(b"")
    lines = frame(directory, width, height)
    assert 1 <= len(lines) <= height
    if height > 8:
        assert "4194000-00001: it has 0 bytes" in "\n".join(lines)


def test_caches_come_and_go(directory: Path) -> None:
    with Watched() as watched:
        assert watched.now() == []
        path = forged().write(directory)
        (first,) = watched.now()
        assert watched.now() == [first]  # its reader is kept
        path.unlink()
        forged().write(directory)  # another one of the same name
        (second,) = watched.now()
        assert second is not first
        assert second.reader is not None
        assert second.reader.look().number("sequences") == 2
        path.write_bytes(path.read_bytes()[:100])  # not whole yet
        path.rename(path.with_name("4194000-00001.kv"))
        (third,) = watched.now()
        assert "it has 100 bytes" in third.problem
        path = forged().write(directory).rename(third.path)
        (fourth,) = watched.now()
        assert fourth.problem == ""
        path.unlink()
        assert watched.now() == []
        directory.chmod(0o777)
        forged().write(directory)
        (unsafe,) = watched.now()
        assert "nothing in it is believed" in unsafe.problem


def test_nothing_is_listed_while_nothing_comes_or_goes(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = forged().write(directory)
    listed: list[int] = []
    listing = watching._listing

    def counted() -> list[object]:
        listed.append(1)
        return listing()

    monkeypatch.setattr(watching, "_listing", counted)
    # The files are older than a tick of the kernel's clock.
    monkeypatch.setattr("vmkv.published.watching._TICK_NS", -(10**12))
    with Watched() as watched:
        (first,) = watched.now()
        assert watched.now() == watched.now() == [first]
        assert len(listed) == 1
        other = forged().write(directory.parent).rename(path.with_name(f"{PID}-00001.kv"))
        assert watched.now(patience_seconds=1000) == [first]
        assert len(watched.now()) == 2
        assert len(listed) == 2
        other.unlink()
        assert watched.now() == [first]


def test_one_of_two_caches_of_a_process(directory: Path) -> None:
    file = forged()
    file.write(directory)
    file.header["tag"] = 7
    file.write(directory)
    for name, count in ((str(PID), 2), (f"{PID}-00007", 1)):
        result = stats(name, "--watch", "--json", "--for", "0")
        assert len(json.loads(result.stdout.splitlines()[0])["caches"]) == count


def test_lines_where_there_is_no_terminal(directory: Path) -> None:
    forged().write(directory)
    result = stats("--watch", "--for", "0.05", "--interval", "0.02")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) >= 2
    assert all(f" {PID}-abcde: live 24.2 MiB, mapped 24.5 MiB, " in line for line in lines)
    assert all("(physical)" in line and "\x1b" not in line for line in lines)


def test_lines_while_there_are_no_caches(directory: Path) -> None:
    result = stats("--watch", "--for", "0.05", "--interval", "0.02")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "Waiting for caches to be shared.\n"


def test_json_is_an_object_a_line(directory: Path) -> None:
    forged().write(directory)
    result = stats("--watch", "--json", "--for", "0.05", "--interval", "0.02")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) >= 2
    assert all(row["caches"][0]["sequences"] == 2 for row in rows)
    assert rows[0]["realtime_ns"] < rows[-1]["realtime_ns"]


def displayed(output: str, height: int) -> list[str]:
    """What is on a screen after so much output, of the few sequences that are written."""
    lines, row = [""] * height, 0
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z])", output):
        if match := re.fullmatch(r"\x1b\[(\d+);1H", part):
            row = int(match[1]) - 1
        elif part in ("\x1b[2J", "\x1b[J"):
            first = 0 if part == "\x1b[2J" else row
            lines[first:] = [""] * (height - first)
        elif part and not part.startswith("\x1b"):
            lines[row] = part
    return lines


def test_screen_shows_each_frame(directory: Path) -> None:
    console = Console(
        file=io.StringIO(), force_terminal=True, width=100, height=20, color_system=None,
        legacy_windows=False,
    )  # fmt: skip
    assert isinstance(console.file, io.StringIO)
    file, sampler = forged(), stats_live.Sampler()
    path = file.write(directory)
    with Watched() as watched, stats_live.Screen(console, "Waiting.") as screen:
        for change in ("", "less", "nothing", "more"):
            if change == "less":
                file.sections["slab"]["bytes"][1, 0] = 0
                file.header["epoch"] += 1
                file.sections["state"]["epoch"][0, 0] = file.header["epoch"]
            if change == "nothing":
                path.unlink()
            else:
                file.write(directory)
            rows = sampler.look(watched.now())
            screen.show(rows)
            wanted = stats_live.frame(rows, "Waiting.", 100, 20, False)
            texts = [line.plain.rstrip()[:100] for line in wanted]
            shown = [line.rstrip() for line in displayed(console.file.getvalue(), 20)]
            assert shown[1:] == (texts + [""] * 20)[1:20]  # the first has the time


@contextmanager
def on_terminal(*arguments: str, size: tuple[int, int]) -> Iterator[tuple[int, int, bytearray]]:
    """A command on a terminal of so many columns and lines: its pid, the terminal, its output."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(PROGRAM, ["vmkv", *arguments], environment({"TERM": "xterm-256color"}))
    resize(terminal, *size)
    output = bytearray()

    def drain() -> None:
        try:
            while data := os.read(terminal, 1 << 16):
                output.extend(data)
        except OSError:  # what Linux says when nobody is there any more
            pass

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        yield pid, terminal, output
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        thread.join()
        os.close(terminal)


def resize(terminal: int, columns: int, lines: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def wait_for(output: bytearray, text: bytes, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while text not in output:
        assert time.monotonic() < end, bytes(output)
        time.sleep(0.02)


def test_screen_lives_and_leaves_the_terminal_as_it_was(directory: Path) -> None:
    path = forged().write(directory)
    # Of this process alone: in /dev/shm there may be others' caches.
    watch = on_terminal("stats", str(PID), "--watch", "--interval", "0.05", size=(90, 30))
    with watch as (pid, terminal, output):
        wait_for(output, f"{PID}-abcde: forged on host".encode())
        assert output.count(b"\x1b[?1049h") == 1  # the other screen ...
        path.unlink()
        del output[:]
        wait_for(output, f"Waiting for process {PID} to share a cache.".encode())
        del output[:]
        forged().write(directory)
        wait_for(output, f"{PID}-abcde: forged on host".encode())
        del output[:]
        resize(terminal, 30, 6)
        wait_for(output, b"\x1b[2J")
        os.kill(pid, signal.SIGINT)
        wait_for(output, b"\x1b[?1049l")  # ... and back
        wait_for(output, b"\x1b[?25h")
        end = time.monotonic() + 60
        while (status := os.waitid(os.P_PID, pid, WAIT)) is None:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert (status.si_code, status.si_status) == (os.CLD_EXITED, 0)
        assert b"Traceback" not in output


def test_interrupt_ends_lines_too(directory: Path) -> None:
    forged().write(directory)
    command = [str(PROGRAM), "stats", str(PID), "--watch", "--interval", "0.05"]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (0, "")


# ---- the picture --------------------------------------------------------------------------------


def test_picture_is_svg_that_says_what_it_shows(directory: Path, tmp_path: Path) -> None:
    forged().write(directory)
    path = tmp_path / "card.svg"
    result = stats(PID, "--picture", path)
    assert (result.exit_code, result.output) == (0, "")
    root = ElementTree.parse(path).getroot()
    texts = [element.text or "" for element in root.iter() if element.tag.endswith("}text")]
    about = root.find("{http://www.w3.org/2000/svg}desc")
    assert about is not None
    assert f"{PID}-abcde: 24.2 MiB live of 24.5 MiB mapped, budget 128 MiB, all physical; " in (
        about.text or ""
    )
    assert "2 GiB of addresses reserved, virtual." in (about.text or "")
    assert any("128 MiB (physical)" in text for text in texts)
    assert any("each row a slab of 64 MiB (physical)" in text for text in texts)
    assert "slot 0: 3,000 tokens, 23.5 MiB mapped" in texts


def test_picture_keeps_within_its_page(directory: Path, tmp_path: Path) -> None:
    file = forged(slabs=300)
    file.write(directory)
    file.header["tag"] = 7
    file.write(directory)
    path = tmp_path / "card.svg"
    assert stats("--picture", path).exit_code == 0
    root = ElementTree.parse(path).getroot()
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for element in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        assert 0 <= x <= x + float(element.attrib["width"]) <= width + 0.01
        assert 0 <= y <= y + float(element.attrib["height"]) <= height + 0.01
    for element in root.iter("{http://www.w3.org/2000/svg}text"):
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        # As wide as letters are at most: the widest line is a little shorter in fact.
        size = text_width(element.text or "", float(element.attrib["font-size"]))
        left = {"start": x, "middle": x - size / 2, "end": x - size}[element.attrib["text-anchor"]]
        assert 0 <= left <= left + size <= width + 60
        assert 0 < y < height


def test_picture_has_a_row_for_each_of_a_card_s_slabs(directory: Path, tmp_path: Path) -> None:
    forged(slabs=40).write(directory)
    path = tmp_path / "card.svg"
    assert stats("--picture", path).exit_code == 0
    text = path.read_text(encoding="utf-8")
    assert "each row a slab of 64 MiB (physical)" in text
    assert re.findall(r">slab (\d+)<", text)[-1] in ("38", "39")


def test_picture_as_png(directory: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    forged().write(directory)
    path = tmp_path / "card.png"
    assert stats(PID, "--picture", path).exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_picture_of_nothing(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "card.svg"
    assert stats("--picture", path).exit_code == 0
    assert "No caches are shared." in path.read_text(encoding="utf-8")


def test_picture_of_a_damaged_file(directory: Path, tmp_path: Path) -> None:
    (directory / "4194000-00001.kv").write_bytes(b"")
    assert "it has 0 bytes" in failure("--picture", tmp_path / "card.svg")
    assert not (tmp_path / "card.svg").exists()


# ---- wrong usage --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--follow",), "--follow needs a PID"),
        (("--trace", "t.json"), "--trace needs a PID"),
        (("1", "--watch", "--follow"), "--watch and --follow don't go together"),
        (("1", "--watch", "--maps"), "--watch and --maps don't go together"),
        (("1", "--picture", "a.svg", "--trace", "t.json"), "don't go together"),
        (("--picture", "a.svg", "--json"), "--json and --picture don't go together"),
        (("--prometheus", "a.prom", "--json"), "--json and --prometheus don't go together"),
        (("--interval", "1"), "--interval goes with"),
        (("--for", "1"), "--for goes with"),
        (("--watch", "--for", "nan"), "'nan' is no number of seconds"),
        (("--watch", "--for", "1", "--interval", "nan"), "'nan' is no number of seconds"),
        (("--picture", "card.gif"), "is no picture's name"),
        (("--prometheus", "metrics.txt"), "neither a port nor a file that ends in .prom"),
        (("--prometheus", "0"), "a port is 1 to 65535"),
        (("--prometheus", "99999"), "a port is 1 to 65535"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], message: str, directory: Path) -> None:
    result = stats(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", " ")


@pytest.mark.parametrize("view", [("--watch",), ("--follow",), ("--picture", "a.svg")])
def test_unknown_process(view: tuple[str, ...], directory: Path) -> None:
    forged().write(directory)
    assert failure(4194000, *view) == (f"process 4194000 shares no cache: there are {PID}-abcde")
