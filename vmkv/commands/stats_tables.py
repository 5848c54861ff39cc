"""What `vmkv stats` prints for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console

from vmkv.commands.printing import facts_table
from vmkv.published import Mapping, Snapshot, Spot, figures
from vmkv.published.words import condition, duration, shape
from vmkv.sizes import count, human

_EVENTS_SHOWN = 20


@dataclass(frozen=True)
class Details:
    """What is shown of one cache besides its line: rows of figures."""

    sequences: list[dict[str, Any]]
    slabs: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    times: dict[str, Any]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Details:
        """Of a snapshot that was taken with its pieces."""
        return cls(
            figures.of_sequences(snapshot),
            figures.of_slabs(snapshot),
            figures.of_runs(snapshot),
            figures.of_times(snapshot),
        )


def _padded(text: str, width: int, left: bool) -> str:
    room = " " * (width - cell_len(text))
    return text + room if left else room + text


class Printer:
    """Prints to stdout; `exact`: bytes as they are, instead of with units."""

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._console = Console(highlight=False, emoji=False)

    def size(self, value: int | None) -> str:
        """A number of bytes."""
        if value is None:
            return "-"
        return f"{value:,}" if self._exact else human(value)

    def _say(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, markup=False, soft_wrap=True)

    def _table(self, titles: Sequence[str], rows: Iterable[Iterable[str]]) -> None:
        """Titles that begin with < are of texts; the others are of numbers, and to the right."""
        # There can be a million rows, and rich takes a millisecond for one.
        names = [title.removeprefix("<") for title in titles]
        left = [title.startswith("<") for title in titles]
        cells = [list(row) for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]

        def line(row: list[str]) -> str:
            return "  ".join(map(_padded, row, widths, left)).rstrip()

        self._say(line(names), "bold")
        for row in cells:
            click.echo(line(row))

    # ---- all caches -------------------------------------------------------------------------

    def caches(self, rows: list[tuple[str, dict[str, Any] | None, str]]) -> None:
        """A line each; in place of those that can't be read, what is wrong."""
        good = [row for _, row, _ in rows if row is not None]
        if good:
            self._table(_TITLES, [self._line(row) for row in good])
            self._say("Bytes are physical, but for reserved addresses: those are virtual.")
        for row in good:
            self._notes(row)
        for name, unread, problem in rows:
            if unread is None:
                self._say(f"{name}: {problem.removeprefix(name + '.kv: ')}")

    def _line(self, row: dict[str, Any]) -> list[str]:
        rate = row["steps_per_second"]
        sizes = ("budget", "reserved", "mapped", "live", "shared", "warm", "retiring")
        return [
            row["cache"],
            row["program"],
            row["device"],
            shape(row["geometry"]),
            *(self.size(row[f"{name}_bytes"]) for name in sizes),
            f"{row['waste']:.1%}",
            f"{row['sequences']:,}",
            "-" if rate is None else f"{rate:,.0f}",
            f"{row['shortages']:,}",
            f"{row['driver_calls']:,}",
            duration(row["map_p50_ns"]),
            duration(row["map_p99_ns"]),
            condition(row),
        ]

    def _notes(self, row: dict[str, Any]) -> None:
        """What is out of the ordinary with a cache."""
        name = row["cache"]
        if row["device_lost"]:
            self._say(f"{name}: its device is lost")
        if not row["settled"]:
            self._say(
                f"{name}: it changed too fast to be read at one moment within a second: lengths "
                "and sums are those of neighbouring steps"
            )
        if row["left_out"]:
            self._say(
                f"{name}: what is mapped from {count(row['left_out'], 'slab')} of it isn't shown: "
                "the budget was raised beyond what its file has room for"
            )
        if row["kernel"] and row["kernel"]["difference"]:
            self._say(f"{name}: the kernel tells otherwise: {row['kernel']['difference']}", "bold")
        for problem in row["problems"]:
            self._say(f"{name}: the file contradicts itself: {problem}", "bold")

    # ---- one cache --------------------------------------------------------------------------

    def cache(self, row: dict[str, Any], details: Details) -> None:
        """Everything about one."""
        self._say(f"{row['cache']}: {row['program']} on {row['device']}", "bold")
        self._facts(row)
        self._notes(row)
        self._sequences(details.sequences)
        self._slabs(details.slabs)
        self._runs(details.runs)
        self._times(details.times)

    def _facts(self, row: dict[str, Any]) -> None:
        geometry, rate = row["geometry"], row["steps_per_second"]
        modes = ", ".join(row["safe_modes"])
        pci = f", card {row['pci_id']}" if row["pci_id"] else ""
        facts = [
            ("process", condition(row)),
            ("device", row["driver"] + pci + (f", safe modes {modes}" if modes else "")),
            (
                "geometry",
                f"{shape(geometry)} layers, {self.size(geometry['bytes_per_token'])} a token, "
                f"up to {geometry['max_tokens']:,} tokens in {geometry['slot_count']:,} slots, "
                f"pages of {self.size(geometry['page_bytes'])}",
            ),
            ("reserved", f"{self.size(row['reserved_bytes'])} of addresses (virtual)"),
            ("held", self._of(row, "slab", "budget") + f" in {count(row['slabs'], 'slab')}"),
            ("mapped", f"{self.size(row['mapped_bytes'])}, {row['waste']:.2%} of it not live"),
            ("live", self.size(row["live_bytes"])),
            ("shared", self.size(row["shared_bytes"])),
        ]
        for name in ("warm", "retiring", "unmapping", "zeroing", "held"):
            if row[f"{name}_bytes"]:
                text = "taken by a call" if name == "held" else name
                facts.append((text, self.size(row[f"{name}_bytes"])))
        measured = "" if rate is None else f", {rate:,.1f} a second"
        facts += [
            ("free", self.size(row["free_clean_bytes"] + row["free_dirty_bytes"])),
            (
                "steps",
                f"{row['steps']:,}{measured}; {row['growing_steps']:,} grew, "
                f"{count(row['shortages'], 'shortage')}",
            ),
            ("driver", self._driver(row)),
        ]
        facts += self._kernel(row["kernel"])
        self._console.print(facts_table(facts), markup=False)

    def _of(self, row: dict[str, Any], part: str, whole: str) -> str:
        return f"{self.size(row[part + '_bytes'])} of {self.size(row[whole + '_bytes'])} {whole}"

    def _driver(self, row: dict[str, Any]) -> str:
        kinds = ("map", "unmap", "fill", "slab", "failed")
        calls = ", ".join(f"{row[f'{kind}_calls']:,} {kind}" for kind in kinds)
        return f"{count(row['driver_calls'], 'call')}: {calls}"

    def _kernel(self, told: dict[str, Any] | None) -> list[tuple[str, str]]:
        if not told:
            return []
        facts = []
        if told["process"]:
            mine = told["process"]
            text = (
                f"this process: {self.size(mine['vram_bytes'])} VRAM, "
                f"{self.size(mine['gtt_bytes'])} GTT, {self.size(mine['evicted_bytes'])} evicted"
            )
            mark = f" (!) {told['difference']}" if told["difference"] else ""
            facts.append(("kernel", text + mark))
        if told["card"]:
            card = told["card"]
            heaps = ", ".join(self._heap(card, name) for name in ("vram", "gtt"))
            facts.append(("card", heaps))
        return facts

    def _heap(self, card: dict[str, Any], name: str) -> str:
        used, whole = card[f"{name}_used_bytes"], self.size(card[f"{name}_bytes"])
        if used is None:
            return f"{whole} {name.upper()}"
        return f"{self.size(used)} of {whole} {name.upper()} in use"

    def _sequences(self, rows: list[dict[str, Any]]) -> None:
        self._say("")
        if not rows:
            self._say("No sequence is open.")
            return
        self._table(
            ("<sequence", "slot", "live tokens", "live", "mapped", "tail waste", "dead but mapped",
             "ahead", "mappings", "last step", "steps since"),
            (
                [
                    f"{row['sequence']:#x}",
                    str(row["slot"]),
                    f"{row['live_tokens']:,}",
                    self.size(row["live_bytes"]),
                    self.size(row["mapped_bytes"]),
                    self.size(row["tail_waste_bytes"]),
                    self.size(row["dead_mapped_bytes"]),
                    self.size(row["ahead_bytes"]),
                    f"{row['mappings']:,}",
                    f"{row['last_step']:,}",
                    f"{row['steps_since']:,}",
                ]
                for row in rows
            ),
        )  # fmt: skip

    def _slabs(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        self._say("")
        names = ("bytes", "mapped_bytes", "warm_bytes", "retiring_bytes", "unmapping_bytes")
        self._table(
            ("slab", "size", "mapped", "warm", "retiring", "unmapping", "full", "mappings"),
            (
                [
                    str(row["slab"]),
                    *(self.size(row[name]) for name in names),
                    f"{row['full']:.0%}",
                    f"{row['mappings']:,}",
                ]
                for row in rows
            ),
        )

    def _runs(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        self._say("")
        self._table(
            ("contiguous from", "to", "runs", "bytes"),
            (
                [
                    self.size(row["from_bytes"]),
                    self.size(row["to_bytes"]),
                    f"{row['runs']:,}",
                    self.size(row["bytes"]),
                ]
                for row in rows
            ),
        )

    def _times(self, times: dict[str, Any]) -> None:
        rows = []
        for name, told in times.items():
            for bucket in told["buckets"]:
                part = bucket["calls"] / told["calls"]
                rows.append(
                    [
                        name,
                        duration(bucket["from_ns"]),
                        duration(bucket["to_ns"]),
                        f"{bucket['calls']:,}",
                        "#" * max(1, round(40 * part)),
                    ]
                )
                name = ""
        if rows:
            self._say("")
            self._table(("<driver call", "from", "to", "calls", "<"), rows)

    # ---- mappings and addresses -------------------------------------------------------------

    def maps(self, name: str, rows: list[Mapping]) -> None:
        """Mappings, a line each. Addresses are virtual, offsets are in slabs."""
        if name:
            self._say(name, "bold")
        if not rows:
            self._say("Nothing is mapped.")
            return
        self._table(
            ("<addresses (virtual)", "bytes", "slab", "offset", "refs", "<state", "<sequence",
             "slot", "group", "<layer", "<tensor", "<tokens"),
            (self._map(row) for row in rows),
        )  # fmt: skip

    def _map(self, row: Mapping) -> list[str]:
        tokens = "-" if row.first_token is None else f"{row.first_token:,}-{row.last_token:,}"
        return [
            f"{row.start:012x}-{row.end:012x}",
            self.size(row.end - row.start),
            str(row.slab),
            f"{row.offset:#x}",
            str(row.refcount),
            row.state,
            "-" if row.sequence is None else f"{row.sequence:#x}",
            str(row.slot),
            str(row.group),
            "all" if row.layer is None else str(row.layer),
            "all" if row.tensor is None else row.tensor,
            tokens,
        ]

    def spot(self, name: str, snapshot: Snapshot, spot: Spot, events: list[dict[str, Any]]) -> None:
        """What an address is, and what happened there."""
        self._say(f"{spot.address:#x} in {name}: {spot.status}", "bold")
        self._console.print(facts_table(self._spot(spot)), markup=False)
        self._say("")
        if not events:
            self._say("None of the last events was there.")
            return
        if len(events) > _EVENTS_SHOWN:
            self._say(f"The last {_EVENTS_SHOWN} of {len(events):,} events there:")
        self._table(
            ("when", "step", "<event", "<sequence", "<addresses (virtual)", "bytes", "took"),
            (self._event(snapshot, event) for event in events[-_EVENTS_SHOWN:]),
        )

    def _spot(self, spot: Spot) -> list[tuple[str, str]]:
        facts = []
        if spot.through_alias:
            facts.append(("through", "a slab's own mapping, which memory is filled through"))
        if spot.sequence is not None:
            facts.append(("sequence", f"{spot.sequence:#x} in slot {spot.slot}"))
        elif spot.last_sequence is not None:
            facts.append(("sequence", f"{spot.last_sequence:#x} was in slot {spot.slot}"))
        elif spot.slot is not None:
            facts.append(("sequence", f"none was in slot {spot.slot}"))
        if spot.group is not None:
            row = "between rows" if spot.tensor is None else f"byte {spot.row_byte:,} of the row"
            layer = "" if spot.layer is None else f", layer {spot.layer}, tensor {spot.tensor}"
            facts.append(("tensor", f"group {spot.group}{layer}, {row}"))
        if spot.token is not None:
            facts.append(("token", f"{spot.token:,}"))
        if spot.slab is not None:
            facts.append(("memory", f"slab {spot.slab}, byte {spot.offset:#x}"))
        if spot.mapping is not None:
            start, end = spot.mapping.start, spot.mapping.end
            size, state = self.size(end - start), spot.mapping.state
            facts.append(("mapping", f"{start:#x}-{end:#x} (virtual), {size}, {state}"))
        return facts

    def _event(self, snapshot: Snapshot, event: dict[str, Any]) -> list[str]:
        address, size = event["address"], event["bytes"]
        ago = max(0, snapshot.taken_ns - event["time_ns"])
        return [
            f"{duration(ago)} ago",
            f"{event['step']:,}",
            event["kind"],
            "-" if event["sequence"] is None else f"{event['sequence']:#x}",
            "-" if address is None else f"{address:012x}-{address + size:012x}",
            self.size(size),
            duration(event["duration_ns"]),
        ]


_TITLES = (
    "<cache", "<program", "<device", "<geometry", "budget", "reserved (virtual)", "mapped", "live",
    "shared", "warm", "retiring", "waste", "sequences", "steps/s", "shortages", "driver calls",
    "map p50", "map p99", "<process",
)  # fmt: skip
