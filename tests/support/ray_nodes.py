"""A Ray cluster of several nodes on this machine, in a process of its own.

Who starts nodes by ray.cluster_utils is a client of their head from then on, also after they are
gone, and Ray ends (_exit(1)) a process that has asked a head for 60 s in vain. A test is to be a
driver of one cluster and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from tests.support.folders import ROOT


@dataclass(frozen=True, slots=True)
class Nodes:
    """A cluster that runs; address: of its head."""

    address: str
    orders: IO[str]
    answers: IO[str]

    def lose(self) -> None:
        """One of the nodes that are not the head is gone, as by a power cut."""
        self.orders.write("lose\n")
        self.orders.flush()
        assert self.answers.readline() == "lost\n"


@contextmanager
def nodes(count: int) -> Iterator[Nodes]:
    """A cluster of so many nodes of one core each."""
    command = [sys.executable, "-m", "tests.support.ray_nodes", str(count)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, f"no cluster of {count} nodes: see above"
        yield Nodes(address, process.stdin, process.stdout)
        process.stdin.close()  # also done by Popen's end where a test fails: the nodes go


def main() -> None:
    """Run a cluster until there are no more orders."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - not for who has it run

    told, sys.stdout = sys.stdout, sys.stderr  # Ray prints
    head = {"num_cpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(int(sys.argv[1]) - 1):
            cluster.add_node(num_cpus=1)
        print(cluster.address, file=told, flush=True)
        for _order in sys.stdin:
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
            print("lost", file=told, flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
