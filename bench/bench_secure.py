"""Secure sums: CPU time of a client and of the server.

There are 256 clients with 16 neighbours each, and contributions of 3,706 x 32 numbers. A third of
the clients drop out after the shares are distributed, which is the most expensive case for the
server: it has to compute the masks that they shared with others.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from common import commit, machine, say, write
from covey.engine.secure import messages
from covey.engine.secure.coordinator import Coordinator
from covey.engine.secure.fixed_point import Fixed
from covey.engine.secure.party import Party
from covey.engine.secure.settings import FleetConfig

CLIENT_MS, SERVER_S = 30, 2  # at most
PHASES = ("keys", "shares", "vector", "reveal")


def measure(n: int, length: int, bits: Any, share: float) -> dict[str, Any]:
    config = FleetConfig(secure=True, bits=bits, range=4096.0 if bits == 64 else 1.0)
    fixed, context, rng = (
        Fixed(bits, config.range, n),
        messages.context_of(0, 1, "train"),
        np.random.default_rng(0),
    )
    x = rng.uniform(-1, 1, length)
    gone = set(rng.permutation(n)[: int(share * n)].tolist())
    begin = time.process_time()
    parties = {c: Party(c, context, config, lambda _: fixed.encode(x)) for c in range(n)}
    born = (time.process_time() - begin) / n  # its keys are made
    spent: dict[str, list[float]] = {phase: [] for phase in PHASES}
    sent: dict[str, int] = dict.fromkeys(PHASES, 0)

    def exchange(requests: dict[int, bytes]) -> Iterator[bytes]:
        for client, request in requests.items():
            phase = messages.unframe(request, context)[0]
            if phase < messages.VECTOR or client not in gone:
                start = time.process_time()
                reply = parties[client].handle(request)
                spent[PHASES[phase]].append(time.process_time() - start)
                sent[PHASES[phase]] = len(reply)
                parties[client].delivered()
                yield reply

    begin = time.process_time()
    outcome = Coordinator(list(parties), context, config, length, fixed.dtype, exchange).run()
    server = time.process_time() - begin - sum(map(sum, spent.values()))
    wrong = float(
        np.abs(fixed.decode(outcome.total, len(outcome.ids)) - x * len(outcome.ids)).max()
    )
    ms = {phase: 1e3 * float(np.median(times)) for phase, times in spent.items()}
    ms["keys"] += 1e3 * born
    return {
        "bits": bits,
        "clients": n,
        "dropped out": len(gone),
        "numbers": length,
        "neighbours": config.neighbours,
        "holders": config.holders,
        "client ms": {**ms, "in all": sum(ms.values())},
        "server s": server,
        "client bytes": {**sent, "in all": sum(sent.values())},
        "largest error": wrong,
    }


def table(found: list[dict[str, Any]]) -> str:
    lines = [
        f"{'bits':>4} {'dropped':>8} {'client ms':>10} {'server s':>9} {'bytes up':>10}"
        f" {'error':>9}"
    ]
    for r in found:
        client, server = r["client ms"]["in all"], r["server s"]
        missed = "  MISSED" * (client > CLIENT_MS or server > SERVER_S)
        up, error = r["client bytes"]["in all"], r["largest error"]
        lines.append(
            f"{r['bits']:>4} {r['dropped out']:>8} {client:>10.1f} {server:>9.2f} {up:>10,}"
            f" {error:>9.1e}{missed}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer clients; nothing is written")
    asked = parser.parse_args()
    found = []
    for bits in (32, 64):
        for share in (0, 1 / 3):
            say(f"... {bits} bits, {share:.0%} of the clients drop out")
            found.append(measure(48 if asked.quick else 256, 3706 * 32, bits, share))
    host = machine()
    print(", ".join(f"{k} {v}" for k, v in host.items()))
    print(table(found))
    if not asked.quick:
        print(
            "written to"
            f" {write('bench-secure', {'commit': commit(), 'machine': host, 'sums': found}).name}"
        )


if __name__ == "__main__":
    main()
