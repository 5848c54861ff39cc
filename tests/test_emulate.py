"""`vmkv emulate`: programs that nobody here changed, on an emulated card."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emulate_support import MAIN, Build, command, emulate
from support import environment, needed, run

# ---- what a program sees


def test_views(build: Build) -> None:
    render, primary = "c 226:128", "c 226:0"
    assert emulate("--", build("preload_views")).splitlines() == [
        "cloexec 1",
        "access 0 -1",
        "O_DIRECTORY -1",
        f"stat {render}",
        f"lstat {render}",
        f"link {render}",
        f"fstat {render}",
        f"stat64 {primary}",
        f"fstat64 {render}",
        f"fstatat {primary}",
        f"statx {render}",
        f"statx fd {render}",
        "scandir card0",
        "scandir renderD128",
        "opendir 5",
        "readlink fd /dev/dri/renderD128",
        "realpath fd /dev/dri/renderD128",
        "readlink ../../../bus/pci",
        "realpath /sys/devices/pci0000:00/0000:03:00.0",
        "realpath /tmp 1",
        "vendor 0x1002",
        "device 0x7550",
        "fdinfo pos:\t0",
        "fdinfo drm-driver:\tamdgpu",
        f"again {render}",
        "another client 1",
        "chmod 0 -1",
        "moved 0, cut 0, written 0, client 1",
        "getcwd /dev/dri, open 1",
        "getcwd /",
    ]


def test_buffers_are_mapped_from_their_beginning(build: Build) -> None:
    assert emulate("--", build("preload_map")).splitlines() == [
        "whole: mapped",
        "beginning: mapped",
        "more: EINVAL",
        "middle: EINVAL",
        "nowhere: EINVAL",
        "private: EINVAL",
        "private, unused: mapped",
        "other's: EACCES",
        "hidden: -1",
        "anonymous: mapped",
    ]


def test_device_managers_find_the_card(build: Build) -> None:
    card = "/sys/devices/pci0000:00/0000:03:00.0"
    assert emulate("--", build("preload_udev")).splitlines() == [
        "classes: drm 1, others 1",
        f"/sys/class/drm/card0: {card}/drm/card0 sysfs 1 uevent 0",
        f"/sys/dev/char/226:128: {card}/drm/renderD128 sysfs 1 uevent 0",
        f"{card}: {card} sysfs 1 uevent 0",
        "/sys/class/drm/card7 leads nowhere",
    ]


def test_programs_see_the_card_whatever_their_environment(build: Build) -> None:
    whole = ["spawn", "spawnp", "execve", "execvpe", "fexecve", "execveat", "execle"]
    inherited = ["execv", "execl", "execlp"]
    told = emulate("--", build("preload_exec")).splitlines()
    assert told == [
        f"{how}: 1, preload {'both' if how == 'execvpe' else 'ours'}, "
        f"kept {'1' if how == 'execvpe' else 'none'}"
        for how in (*whole, *inherited)
    ]


def test_tools_see_the_card() -> None:
    listed = emulate("--gpu", "gfx1100", "--", "ls", "-l", "/dev/dri/")
    assert re.search(r"^crw.* 226, +0 .* card0$", listed, re.MULTILINE)
    assert re.search(r"^crw.* 226, +128 .* renderD128$", listed, re.MULTILINE)
    assert emulate("--", "cat", "/sys/class/drm/card0/device/device") == "0x7550\n"
    found = emulate("--", "sh", "-c", "cd /sys/bus/pci/drivers/amdgpu && ls -d 0*")
    assert re.fullmatch(r"0000:..:00\.0\n", found)


def test_other_files_are_the_machines() -> None:
    script = "ls /sys/bus/pci/devices | wc -l; cat /proc/version; ls /dev/null"
    there = run("sh", "-c", script).splitlines()
    shown = emulate("--", "sh", "-c", script).splitlines()
    assert int(shown[0]) == int(there[0]) + 1
    assert shown[1:] == there[1:]


# ---- several processes, one card


@pytest.mark.parametrize(
    ("program", "check"),
    [
        *(("preload_share", check) for check in (
            "inherit", "account", "last-close", "prime", "syncobj", "killed-waiting", "threads",
            "close-all", "bad-pointers", "vfork", "crowd",
        )),
        *(("preload_memory", check) for check in (
            "used", "closed-mapped", "userptr", "userptr-of-two",
        )),
    ],
)  # fmt: skip
def test_processes_share_the_card(build: Build, program: str, check: str, tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    emulate("--counts", counts, "--", build(program), check)
    stats = json.loads(counts.read_text())["stats"]
    left = ("files", "buffers", "handles", "mappings", "syncobjs", "vram_used_bytes")
    assert {name: stats[name] for name in left} == dict.fromkeys(left, 0)
    assert stats["ioctls"] > 0
    # The one number that no ioctl has, and nothing else.
    assert stats["refused"] == (check == "bad-pointers")


def test_answers_that_never_change_count(build: Build, tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    emulate("--counts", counts, "--", build("preload_share"), "constants")
    ioctls = json.loads(counts.read_text())["ioctls"]
    assert ioctls == {"INFO": 1000 + 5 * 40, "VERSION": 1000, "GET_CAP": 2000}
    trace = tmp_path / "trace"  # each call is traced, so none is answered without asking
    emulate("--trace", trace, "--", build("preload_share"), "constants")
    assert len(trace.read_text().splitlines()) == sum(ioctls.values())


def test_what_a_killed_program_submitted_goes_with_it(tmp_path: Path) -> None:
    """But for what runs soon: others would wait for it."""
    counts, stress = tmp_path / "counts", needed("amdgpu_stress")

    def packets_and_submissions(copies: int, *limit: str, code: int = 0) -> tuple[int, int]:
        size = 64 << 20
        program = (stress, "-b", "v", size, "-b", "g", size, "-c", 1, 2, size, copies)
        emulate("--counts", counts, "--", *limit, *map(str, program), code=code)
        stats = json.loads(counts.read_text())["stats"]
        return stats["packets"], stats["submissions"]

    packets_each, submissions = packets_and_submissions(1)
    assert submissions == 1
    killing = ("timeout", "--signal=KILL", "1")
    packets, submissions = packets_and_submissions(100_000, *killing, code=137)
    assert 0 < packets < packets_each * submissions


def test_what_ioctls_take_is_told(build: Build) -> None:
    told = emulate("--", build("preload_time")).splitlines()
    assert len(told) == 12
    for line in told[1:]:
        median, best = map(float, line.split()[-2:])
        assert 0 < best <= median


def test_a_card_that_goes_before_its_program(build: Build) -> None:
    done = subprocess.run(
        command("--", build("preload_share"), "orphan"),
        env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "gone\n")


def test_a_card_within_a_card() -> None:
    inner = command("--gpu", "gfx1100", "--", "cat", "/sys/class/drm/card0/device/device")
    assert emulate("--", *inner) == "0x744c\n"
    program = needed("drmdevice")
    assert "device_id     744c" in emulate("--", *command("--gpu", "gfx1100", "--", program))


def test_replay_is_the_same(tmp_path: Path) -> None:
    """What vmkv makes of a card is the same in its own process and through the preload library."""
    options = ("replay", "--limit", "2", "--budget", "256MiB", "--json")
    program = [sys.executable, "-c", MAIN, *options, "--device"]
    shown = json.loads(emulate("--", *program, "amdgpu"))
    own = json.loads(run(*program, "emulated:gfx1201"))
    assert counted(shown) == counted(own)
    # A card of the program's own is no business of the preload library's.
    own_there = json.loads(emulate("--", *program, "emulated:gfx1201"))
    assert counted(own_there) == counted(own)


def counted(report: dict[str, object]) -> dict[str, object]:
    """Of a replay's report, all but what differs from run to run, and from where the CPU can't
    look: there the copy engine reads every row, not a sample."""
    return {
        name: counted(value) if isinstance(value, dict) else value
        for name, value in report.items()
        if not name.endswith("seconds") and name not in ("device", "checks_copied")
    }


# ---- programs of other people's


def test_drmdevice() -> None:
    told = emulate("--", needed("drmdevice"))
    assert "--- Devices reported 1 ---" in told
    assert told.count("vendor_id     1002") == 3
    assert "Opening device node /dev/dri/renderD128" in told


def test_vulkaninfo(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    # The oldest RADV that distributions still have knows it.
    told = emulate("--gpu", "gfx1030", "--counts", counts, "--", needed("vulkaninfo"), "--summary")
    if "RADV" not in told:
        pytest.skip("no RADV is installed")
    assert "deviceID           = 0x73bf" in told
    assert json.loads(counts.read_text())["stats"]["refused"] == 0


# ---- the command


def test_exit_codes(tmp_path: Path) -> None:
    emulate("--", "true")
    emulate("--", "sh", "-c", "exit 7", code=7)
    emulate("true")
    emulate("--", "sh", "-c", "kill -KILL $$", code=128 + signal.SIGKILL)
    emulate("--", "sh", "-c", "kill -SEGV $$", code=128 + signal.SIGSEGV)


def refused(*arguments: str | Path) -> str:
    """The one line that says why not."""
    lines = emulate(*arguments, code=2).splitlines()
    assert lines[-1].startswith("Error: ")
    assert lines[0].startswith("Usage: ")
    return lines[-1].removeprefix("Error: ")


def test_what_cannot_be_run(build: Build, tmp_path: Path) -> None:
    assert refused() == "say which program to run: vmkv emulate -- PROGRAM ARGS"
    assert refused("--", "no-such-thing") == "no-such-thing: there is no such program in PATH"
    assert refused("--", "/no/such") == "/no/such: there is no such program"
    assert refused("--", tmp_path).endswith("is a directory, not a program")
    text = tmp_path / "text"
    text.write_text("hello")
    assert refused("--", text).endswith("isn't executable")
    text.chmod(0o755)
    assert "neither an ELF program nor a script" in refused("--", text)
    text.write_text("#!/no/interpreter\n")
    assert refused("--", text).endswith("there is no interpreter /no/interpreter")
    setuid = tmp_path / "setuid"
    shutil.copy("/bin/true", setuid)
    setuid.chmod(0o4755)
    if not setuid.stat().st_mode & stat.S_ISUID:
        pytest.skip("no setuid files in the temporary directory")
    assert "is setuid" in refused("--", setuid)


def test_a_static_program(build: Build) -> None:
    try:
        program = build("preload_views", "-static")
    except pytest.fail.Exception:
        pytest.skip("no static libc")
    assert "is linked statically" in refused("--", program)


def test_cards_that_cannot_be() -> None:
    assert 'no model "gfx9999"; there are gfx1030' in refused("--gpu", "gfx9999", "--", "true")
    assert "kernel=5.4: it takes 6.1, 6.12 or 7.2" in refused("--kernel", "5.4", "--", "true")
    assert "vram=1: it takes a size" in refused("--vram", "1", "--", "true")
    assert "can't be in it" in refused("--trace", "a&b", "--", "true")
    refused("--inject", "nonsense", "--", "true")


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    """The program isn't run for nothing."""
    program = ("--", "touch", tmp_path / "was run")
    for option in ("--counts", "--trace"):
        missing = tmp_path / "missing" / "file"
        assert f"{missing}: No such file or directory" in refused(option, missing, *program)
    assert not (tmp_path / "was run").exists()
    told = emulate("--counts", "/dev/full", *program, code=1)
    assert told == "Error: /dev/full: No space left on device\n"


def test_a_program_with_a_sanitizer(build: Build) -> None:
    """It would want its own library to be the first."""
    try:
        program = build("preload_share", "-fsanitize=address")
    except pytest.fail.Exception:
        pytest.skip("no run-time of -fsanitize=address")
    emulate("--", program, "inherit", variables={"ASAN_OPTIONS": "detect_leaks=0"})


def test_not_enough_memory() -> None:
    """The addresses that the memory file takes are more than the process may have."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30));" + MAIN
    done = subprocess.run(
        [sys.executable, "-c", limited, "emulate", "--vram", "64GiB", "--", "true"],
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no memory file of 68719476736" in done.stderr


def test_faults_and_traces(build: Build, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    failing = "ioctl:GEM_CREATE:1:ENOMEM"
    options = ("--inject", failing, "--trace", trace)
    told = emulate(*options, "--", build("preload_share"), "inherit", code=1)
    assert "Cannot allocate memory" in told
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [line["ioctl"] for line in lines] == ["GEM_CREATE"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_handed_on(number: signal.Signals, tmp_path: Path) -> None:
    name = number.name.removeprefix("SIG")
    script = f'trap "exit 9" {name}; echo ready; while :; do sleep 0.05; done'
    with subprocess.Popen(
        command("--", "sh", "-c", script), env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        try:
            assert process.wait(timeout=60) == 9
        finally:
            process.kill()


@pytest.mark.parametrize("number", [0, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(number: int, tmp_path: Path) -> None:
    with subprocess.Popen(
        command("--", "sh", "-c", "echo ready; read -r x"),
        env=environment({"TMPDIR": str(tmp_path)}),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(os.listdir(tmp_path)) == 1
        if number:
            process.send_signal(number)
    for _ in range(200):
        if not os.listdir(tmp_path):
            break
        time.sleep(0.05)
    assert os.listdir(tmp_path) == []
