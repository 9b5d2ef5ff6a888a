"""Plain sums against gradients: spectral as a whole, and 20 rounds of FedNCF with all clients.

It measures CPU seconds of one thread, on MovieLens-1M where COVEY_DATA has it, else on built-in
data of its size. Both evaluate all clients once at the end. All rounds of FedNCF cost the same, so
some are timed and their time is scaled to 20.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from common import Engine, commit, config_of, cpu_seconds, machine, say, source_of, write

TARGET = 20
EPOCHS = 20


def sums(choose: bool, repeats: int) -> float:
    """The best of some whole runs."""
    found = []
    for _ in range(repeats):
        options = [] if choose else ["mechanism.0.choose=[]"]
        engine = Engine.of(config_of("spectral", "ratio-full", *source_of("ml-1m"), *options))
        ids = engine.stratified(0)

        def work(engine: Engine = engine, ids: torch.Tensor = ids) -> None:
            for _ in range(4 + choose):
                engine.round(ids)
            engine.evaluate(ids)

        found.append(cpu_seconds(work))
    return min(found)


def gradients(rounds: int) -> float:
    engine = Engine.of(config_of("fedncf", "ratio-full", *source_of("ml-1m")))
    ids = engine.stratified(0)
    each = min(cpu_seconds(lambda: engine.round(ids)) for _ in range(rounds))
    return EPOCHS * each + cpu_seconds(lambda: engine.evaluate(ids))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2, help="whole runs of the sums")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of FedNCF that are timed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seconds = {
        "spectral, 4 sums and evaluation": sums(False, options.repeats),
        "spectral, 4 sums, a choice and evaluation": sums(True, options.repeats),
        "FedNCF, 20 rounds of everybody and evaluation": gradients(options.rounds),
    }
    plain, chosen, trained = seconds.values()
    ratio = {
        "without the choice": trained / plain,
        "with the choice": trained / chosen,
        "target": TARGET,
    }
    for name, value in seconds.items():
        say(f"{name}: {value:.1f} CPU seconds")
    say(
        f"{ratio['without the choice']:.1f} times faster, {ratio['with the choice']:.1f} with the"
        " choice"
    )
    result = {"seconds": seconds, "times_faster": ratio, "machine": machine(), "commit": commit()}
    say(str(write("bench-sums", result)))


if __name__ == "__main__":
    main()
