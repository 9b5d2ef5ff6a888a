"""A secure sum over loopback sockets, with server and clients in separate processes; a program.

    python secure_hosts.py server FOLDER          prints its port; writes record.bin and outcome.npz
    python secure_hosts.py clients FOLDER N PORT  reads clients-N.npz, which the server never opens

The record holds every message that the server process received or sent, after its length
and the direction.
"""

import json
import os
import sys
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from covey.engine.secure import messages
from covey.engine.secure.coordinator import Coordinator
from covey.engine.secure.fixed_point import Fixed
from covey.engine.secure.party import Party
from covey.engine.secure.settings import FleetConfig, SumFailed

SENT, RECEIVED = b">", b"<"
DONE = b""  # a host's last message of a phase: whoever has not answered by now has dropped out
KEY = os.environ.get("SECURE_TEST_KEY", "").encode()


def plan_of(folder: Path) -> tuple[dict[str, Any], FleetConfig, bytes]:
    plan = json.loads((folder / "plan.json").read_text())
    return (
        plan,
        FleetConfig(**plan["config"]),
        messages.context_of(plan["run"], plan["round"], "train"),
    )


def read_record(path: Path) -> Iterator[tuple[bytes, bytes]]:
    data, at = path.read_bytes(), 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        yield data[at + 8 : at + 9], data[at + 9 : at + 9 + size]
        at += 9 + size


def serve(folder: Path) -> None:
    plan, config, context = plan_of(folder)
    with (
        Listener(("127.0.0.1", 0), authkey=KEY) as listener,
        (folder / "record.bin").open("wb") as record,
    ):
        print(listener.address[1], flush=True)
        hosts = [listener.accept() for _ in range(plan["hosts"])]
        home = {client: host for host in hosts for client in json.loads(host.recv_bytes())}
        fixed = Fixed(config.bits, config.range, len(home))

        def exchange(requests: dict[int, bytes]) -> Iterator[bytes]:
            return _exchange(requests, hosts, home, record)

        server = Coordinator(sorted(home), context, config, plan["length"], fixed.dtype, exchange)
        try:
            outcome = server.run()
        except SumFailed as error:
            np.savez(folder / "outcome.npz", error=str(error))
        else:
            np.savez(
                folder / "outcome.npz",
                ids=outcome.ids,
                total=fixed.decode(outcome.total, len(outcome.ids)),
            )
        for host in hosts:
            host.close()


def _exchange(
    requests: dict[int, bytes],
    hosts: list[Connection],
    home: dict[int, Connection],
    record: BinaryIO,
) -> Iterator[bytes]:
    for client, request in requests.items():
        _note(record, SENT, request)
        home[client].send_bytes(request)
    for host in hosts:
        host.send_bytes(DONE)
    for host in hosts:
        while (reply := host.recv_bytes()) != DONE:
            _note(record, RECEIVED, reply)
            yield reply


def _note(record: BinaryIO, which: bytes, message: bytes) -> None:
    record.write(len(message).to_bytes(8, "little") + which + message)


def host(folder: Path, number: str, port: int) -> None:
    """Some clients; what they keep to themselves is written down when all is over, for the test."""
    plan, config, context = plan_of(folder)
    with np.load(folder / f"clients-{number}.npz") as file:
        values = dict(zip(file["ids"].tolist(), file["values"], strict=True))
    fixed = Fixed(config.bits, config.range, plan["clients"])
    gone = {int(c): phase for c, phase in plan["gone"].items()}
    parties = {
        c: Party(c, context, config, lambda _, x=x: fixed.encode(x)) for c, x in values.items()
    }
    with Client(("127.0.0.1", port), authkey=KEY) as server:
        server.send_bytes(json.dumps(list(parties)).encode())
        while _phase(server, parties, gone, context):
            pass
    secret = {str(c): [p.seed.hex(), p.masking.secret.hex()] for c, p in parties.items()}
    (folder / f"secrets-{number}.json").write_text(json.dumps(secret))


def _phase(
    server: Connection, parties: dict[int, Party], gone: dict[int, int], context: bytes
) -> bool:
    requests = []
    try:
        while (request := server.recv_bytes()) != DONE:
            requests.append(request)
    except EOFError:
        return False
    for request in requests:
        phase, client, _ = messages.unframe(request, context)
        if gone.get(client, 9) > phase:
            server.send_bytes(parties[client].handle(request))
    server.send_bytes(DONE)
    return True


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(Path(sys.argv[2]))
    else:
        host(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
