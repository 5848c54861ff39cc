#!/usr/bin/env python3
"""Writes the man page vmkv(1) from what the commands say of themselves with --help.

After a change of a command: python -P tools/manual.py > tools/vmkv.1
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import click

import vmkv
from vmkv.commands import main

# What one would do, and how. They run as tests; 4711 stands for the pid of an engine.
EXAMPLES = (
    ("How many agents fit on a card?",
     "vmkv plan --model qwen3-8b --budget 10GB --agents 8 --context 16000 --average 3000"),
    ("Real requests with real memory, and a picture of the card at its fullest.",
     "vmkv replay --limit 30 --picture card.svg"),
    ("Can this card be trusted?", "vmkv doctor"),
    ("Which caches are there, and how full?", "vmkv stats"),
    ("One of them: its sequences, slabs, and how long driver calls take.", "vmkv stats 4711"),
    ("What is where, as a live screen or as a picture.", "vmkv stats 4711 --watch"),
    ("", "vmkv stats 4711 --picture card.svg"),
    ("A line of JSON each second for a minute.",
     "vmkv stats --watch --json --interval 1 --for 60"),
    ("Whose address was it that the card faulted at?",
     "vmkv stats 4711 --address 0x7f0b96640000"),
    ("Every mapping of layer 3.", "vmkv stats 4711 --maps --layer 3 --json"),
    ("What it maps and unmaps, as it happens, and as a trace for ui.perfetto.dev.",
     "vmkv stats 4711 --follow"),
    ("", "vmkv stats 4711 --trace growth.json --for 10"),
    ("Metrics for Prometheus: served, or in a file for node_exporter.",
     "vmkv stats --prometheus 9470"),
    ("", "vmkv stats --prometheus vmkv.prom"),
    ("Remove what dead engines left.", "vmkv stats --reap"),
    ("Compile against the library.",
     "cc engine.c $(vmkv pkg-config --cflags --libs)"),
)  # fmt: skip

_COMPLETION = """\
Commands, options, the names of models and the pids of caches are completed by bash (4.4 or newer),
zsh and fish, once they have been told so:

\b
  bash, in ~/.bashrc:  eval "$(_VMKV_COMPLETE=bash_source vmkv)"
  zsh, in ~/.zshrc:    eval "$(_VMKV_COMPLETE=zsh_source vmkv)"
  fish, in ~/.config/fish/completions/vmkv.fish:  _VMKV_COMPLETE=fish_source vmkv | source
"""

_ENVIRONMENT = (
    ("VMKV_STATS", "1: an engine's caches are shared with vmkv stats, unless it says otherwise "
     "itself; 0: none is, whatever it says."),
    ("XDG_RUNTIME_DIR", "Where caches are shared: in vmkv/ there."),
    ("NO_COLOR", "Set: nothing is coloured."),
)  # fmt: skip

_FILES = (
    ("$XDG_RUNTIME_DIR/vmkv/PID-TAG.kv",
     "A cache that is shared. Only its user can read it, and only the engine writes it."),
    ("/dev/shm/vmkv-UID/PID-TAG.kv", "The same, where XDG_RUNTIME_DIR is not set."),
)  # fmt: skip

_EXIT = (
    ("0", "It did what was asked for."),
    ("1", "It failed, or what was checked is wrong: one line on stderr says why."),
    ("2", "Wrong usage."),
    ("130", "It was interrupted; what goes on until then, as vmkv stats --watch does, exits 0."),
)


def escape(text: str) -> str:
    """Text for roff: no letter of it means anything."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs as roff. Those that begin with \\b keep their lines, as click does it."""
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        lines = part.splitlines()
        if lines[0].strip() == "\b":
            yield "\n".join([".PP", ".nf", *map(escape, lines[1:]), ".fi"])
        else:
            words = escape(" ".join(line.strip() for line in lines))
            yield f".PP\n{words}"


def terms(pairs: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Names in bold, and what they are."""
    for name, text in pairs:
        yield f".TP\n\\fB{escape(name)}\\fR\n{escape(' '.join(text.split()))}"


def root() -> click.Context:
    """The context that commands are run in."""
    return click.Context(main, info_name="vmkv", **main.context_settings)


def command_page(name: str, command: click.Command) -> Iterator[str]:
    """A command: how it is called, its help, its options."""
    context = click.Context(command, info_name=name, parent=root())
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SS vmkv {escape(name)} {escape(usage)}"
    yield from paragraphs(textwrap.dedent(command.help or ""))
    records = [param.get_help_record(context) for param in command.get_params(context)]
    yield from terms(record for record in records if record is not None)


def page() -> str:
    """The whole man page."""
    context = root()
    summary, _, about = (main.help or "").partition("\n\n")
    parts = [
        f'.\\" Written by tools/manual.py: change that, or the help of the commands.\n'
        f'.TH VMKV 1 "" "vmkv {vmkv.__version__}" "User Commands"',
        f".SH NAME\nvmkv \\- {escape(summary.rstrip('.'))}",
        ".SH SYNOPSIS\n\\fBvmkv\\fR [OPTIONS] COMMAND [ARGS]...",
        ".SH DESCRIPTION",
        *paragraphs(textwrap.dedent(about)),
        ".SH OPTIONS",
        *terms(
            record
            for param in main.get_params(context)
            if (record := param.get_help_record(context)) is not None
        ),
        ".SH COMMANDS",
    ]
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        parts += command_page(name, command)
    parts.append(".SH EXAMPLES")
    for text, example in EXAMPLES:
        parts.append((f".PP\n{escape(text)}\n" if text else "") + f".PP\n.RS 4\n.nf\n"
                     f"{escape(example)}\n.fi\n.RE")  # fmt: skip
    parts += [".SH SHELL COMPLETION", *paragraphs(_COMPLETION)]
    parts += [".SH EXIT STATUS", *terms(iter(_EXIT))]
    parts += [".SH ENVIRONMENT", *terms(iter(_ENVIRONMENT))]
    parts += [".SH FILES", *terms(iter(_FILES))]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    print(page(), end="")
