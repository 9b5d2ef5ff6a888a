"""One round of FedMF in clear, by secure sums, and on ciphertexts: bytes, seconds and errors.

256 clients of MovieLens-100K train on an item table of 1,682 x 32 numbers. All work of the clients
and the server is done by one process on one thread.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from common import commit, config_of, cpu_seconds, machine, say, source_of, write
from covey.core import Round
from covey.engine.encrypted.ckks import LARGEST, SCALE, SCALED, SUMS, TABLE
from covey.engine.encrypted.fleet import EncryptedFleet, opened
from covey.engine.rounds import enrol, run_round, start
from covey.run.assemble import Assembly, assemble, prepare

SECONDS, ERROR = 60, 1e-4  # at most, of a round and of a number in the table
SIDES = {"clear": [], "secure sums": ["fleet.secure=true"], "CKKS": ["fleet.encrypted=true"]}


def measure(how: str, combine: str, clients: int) -> tuple[dict[str, Any], torch.Tensor]:
    """What a round takes, and the table after it."""
    sets = [f"combine.use=covey.aggregate.combine:{combine}", f"run.cohort={clients}"]
    config = config_of("fedmf", "ratio-full", *source_of("ml-100k"), *sets, *SIDES[how])
    made = assemble(config, prepare(config))
    server = start(made.method)
    if isinstance(made.server_side, EncryptedFleet):
        server = made.server_side.begin(server)
    server = enrol(server, made.server_side, made.method)
    meter = made.fleet.meter
    began = time.perf_counter(), time.process_time(), meter.up, meter.down
    ids_C = made.fleet.ids_N[:clients]
    server, answered = run_round(server, made.server_side, made.method, Round(1, ids_C))
    assert len(answered.ids_C) == clients and not meter.dropped
    seconds = time.perf_counter() - began[0]
    found = {"how": how, "combine": combine, "seconds": seconds}
    found |= {"cpu seconds": time.process_time() - began[1]}
    found |= {"up": (meter.up - began[2]) / clients, "down": (meter.down - began[3]) / clients}
    if isinstance(made.server_side, EncryptedFleet):
        found |= apart(made, made.server_side)
    return found, opened(server, made.agreed, made.method).public["items"]


def apart(made: Assembly, fleet: EncryptedFleet) -> dict[str, Any]:
    """The milliseconds of one client and, for one client's message, of the server."""
    clients, server, like = fleet.clients, fleet.server, fleet.like

    def ms(work: Callable[[], object]) -> float:
        return 1e3 * statistics.median(cpu_seconds(work) for _ in range(7))

    message = clients.seal(like, TABLE, -1)
    one = server.decoded(message)
    degree, bits = SCALED if fleet.scaled else SUMS
    return {
        "encrypt ms": ms(lambda: clients.seal(like, TABLE, -1)),
        "decrypt ms": ms(lambda: clients.open(message)),
        "add ms": ms(lambda: server.added(one, server.decoded(message))),
        "ciphertexts": clients.shape[0],
        "degree": degree,
        "moduli": list(bits),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few clients; nothing is written")
    clients = 12 if parser.parse_args().quick else 256
    rows, host = [], machine()
    clear: dict[str, torch.Tensor] = {}
    for combine in ("Sum", "Mean"):
        for how in SIDES:
            say(f"... {combine}, {how}")
            found, table_ID = measure(how, combine, clients)
            clear_ID = clear.setdefault(combine, table_ID)
            found["largest error"] = float((table_ID - clear_ID).abs().max())
            found["missed"] = found["cpu seconds"] > SECONDS or found["largest error"] > ERROR
            rows.append(found)
            say(", ".join(f"{k} {v:.3g}" for k, v in found.items() if isinstance(v, float)))
    about = {"data": source_of("ml-100k")[0].partition("=")[2], "clients": clients}
    about |= {"numbers": clear_ID.numel(), "scale": SCALE, "largest": LARGEST}
    about |= {"at most": {"seconds": SECONDS, "error": ERROR}}
    if clients == 256:
        stored = {"commit": commit(), "machine": host, **about, "rows": rows}
        print("written to", write("bench-encrypted", stored).name)


if __name__ == "__main__":
    main()
