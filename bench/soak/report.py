"""What was seen, in lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.soak.judge import MIB, Sample, Verdict

LARGEST = 15


def line(sample: Sample) -> str:
    waits = sum(value for name, value in sample.values.items() if name.startswith("waiting "))
    held = sum(value for name, value in sample.values.items() if name.startswith("memory "))
    size = sum(value for name, value in sample.values.items() if name.startswith("size "))
    return (
        f"{sample.at / 60:5.1f} min: {held / MIB:,.0f} MiB in services, {size / MIB:,.1f} MiB in tables and indexes, "
        f"{sample.values['connections']:.0f} connections, {waits:,.0f} waiting"
    )


def _amount(series: str, value: float) -> str:
    return f"{value / MIB:,.1f} MiB" if series.split()[0] in ("memory", "size", "broker") else f"{value:,.1f}"


def table(rates: Mapping[str, float], capacity: Mapping[str, float], verdicts: Sequence[Verdict]) -> str:
    """All that is not flat; of the rest, services and what is largest."""
    load = ", ".join(f"{rate:,.1f} of {capacity[path]:,.1f} {path}" for path, rate in rates.items())
    shown = [each for each in verdicts if not each.flat]
    flat = [each for each in verdicts if each.flat]
    shown += [each for each in flat if each.series.split()[0] not in ("size", "dead", "rows")]
    shown += sorted((each for each in flat if each.series.startswith("size ")), key=lambda v: -v.level)[:LARGEST]
    lines = [f"a second: {load}", f"{'':4}{'series':44}{'level':>14}{'most':>14}{'gained':>14}{'allowed':>14}"]
    for each in shown:
        amounts = [_amount(each.series, value) for value in (each.level, each.most, each.gained, each.allowed)]
        lines.append(f"{'' if each.flat else '!!':4}{each.series:44}" + "".join(f"{word:>14}" for word in amounts))
    growing = len([each for each in verdicts if not each.flat])
    return "\n".join([*lines, f"{len(verdicts)} series, {growing} of them grow"])
