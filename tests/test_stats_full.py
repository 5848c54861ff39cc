"""A runtime directory with no room left: sharing is refused at once, and nobody is hurt."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import environment, needed

# Runs in a mount namespace, where argv[1] is a tmpfs of 1 MiB.
PROGRAM = """
import errno, os, sys
from pathlib import Path
import vmkv
from vmkv import published
from vmkv.geometry import Geometry, Group, Tensor

runtime = Path(sys.argv[1])
os.environ["XDG_RUNTIME_DIR"] = str(runtime)
geometry = Geometry((Group("full", (0, 1), (Tensor("k", 2, 64), Tensor("v", 2, 64))),))

def cache(device, share=True):
    return vmkv.Cache(device, geometry, budget=8 << 20, page=65536, max_slots=4, max_tokens=4096,
                      share=share)

def files():
    return sorted(path.name for path in (runtime / "vmkv").iterdir())

def free():
    found = os.statvfs(runtime)
    return found.f_bavail * found.f_bsize

def fill(path, keep):
    with path.open("wb", buffering=0) as file:
        try:
            while free() > keep:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC, error

def look():
    ((one,)) = published.find(os.getpid())
    with one.reader as reader:
        snapshot = reader.look(pieces=True, events=True)
    assert published.contradictions(snapshot) == []
    return snapshot

with vmkv.open("host") as device:
    with cache(device) as running:
        size = sum(path.stat().st_size for path in (runtime / "vmkv").iterdir())
        there, refusals = files(), []
        for keep in (0, size // 2):
            fill(runtime / "filler", keep)
            assert free() < size
            try:
                cache(device).close()
            except vmkv.Error as error:
                refusals.append(str(error))
            assert files() == there, files()
            assert len(refusals) == 1 + (keep > 0), "it was made"
            # Who shares nothing needs no room.
            cache(device, share=False).close()
            # The one that runs writes its file on, over all of it.
            with running.open() as first:
                for tokens in range(11, 4000, 97):
                    with running.open() as other:
                        running.step({first: tokens, other: tokens // 2})
                assert look().lives["tokens"][first.slot] == tokens
            (runtime / "filler").unlink()
    assert files() == []
    with cache(device):
        assert len(files()) == 1
print(*refusals, sep="\\n")
"""


def in_a_tmpfs(directory: Path) -> list[str]:
    """What runs a program where a tmpfs of 1 MiB is mounted at a directory, in a namespace of its
    own; skips the test if none can be had."""
    unshare, mount = needed("unshare"), needed("mount")
    mounted = f'{mount} -t tmpfs -o size=1m,mode=0700 vmkv-test "$0" && exec "$@"'
    for options in (["--mount"], ["--user", "--map-root-user", "--mount"]):
        command = [unshare, *options, "--", "sh", "-c", mounted, str(directory)]
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return command
    pytest.skip(f"needs the right to mount a tmpfs: {tried.stderr.strip()}")


def test_full_tmpfs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    command = [*in_a_tmpfs(runtime), sys.executable, str(program), str(runtime)]
    done = subprocess.run(
        command,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    refusals = done.stdout.splitlines()
    assert len(refusals) == 2
    for line in refusals:
        assert f"{runtime}/vmkv" in line
        assert "No space left on device" in line
    # Outside of the namespace there never was anything.
    assert os.listdir(runtime) == []
