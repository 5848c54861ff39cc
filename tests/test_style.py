"""The linters, and the rules of this tree that no linter knows."""

import re

from support import ROOT, TREE_FILES, needed, run, tree_files

MAX_LINES = 600
# Written so that they don't match themselves.
TRACES = re.compile(
    r"/(?:roo[t]|wor[k]|hom[e])/|/tm[p]/\w|py[p]i\.|pythonhoste[d]|npm[j]s|deb\.debia[n]"
    r"|--(?:extra-)?inde[x]-url|sources\.lis[t]|TO[D]O|FIXM[E]|XX[X]"
)
TEXTS = [path for path in tree_files() if path.suffix != ".csv"]
CODE = [path for path in TEXTS if path.suffix in (".c", ".h", ".py", ".pyi")]


def test_ruff_check() -> None:
    run(needed("ruff"), "check", "--no-cache", ".", cwd=ROOT)


def test_ruff_format() -> None:
    run(needed("ruff"), "format", "--no-cache", "--check", "--diff", ".", cwd=ROOT)


def test_mypy_strict() -> None:
    run(needed("mypy"), cwd=ROOT)


def test_files_are_short() -> None:
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in CODE}
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}


def test_files_name_no_machine_and_leave_nothing_undone() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if TRACES.search(line)
    ]
    assert found == []


def test_top_level_holds_nothing_else() -> None:
    ignored = re.compile(r"\.|build|dist$|__pycache__|\w+\.egg-info$")
    names = {path.name for path in ROOT.iterdir() if not ignored.match(path.name)}
    assert names == {"native", "tests", "tools", "vmkv"} | set(TREE_FILES) - {".gitignore"}
