"""What the processes of a run meet at: torch's store and two reference servers, on a host of their own."""

import json
import sys
import time

import torch.distributed as dist

import weightcast as wc

from .worker import die_with_parent

LEASE = 30.0
"""Seconds: two cores that many processes share must not cost one its place."""


def main(address: str, over_links: bool, rollouts: int) -> None:
    """Says where they are, then how many processor seconds it has used whenever it is asked."""
    die_with_parent()
    store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
    with (
        wc.serve(f"{address}:0", insecure=over_links, lease=LEASE) as pull,
        # A target of a push takes a place at a source: there must be one for each.
        wc.serve(f"{address}:0", insecure=over_links, lease=LEASE, fanout=rollouts) as push,
    ):
        servers = {"pull": pull.address, "push": push.address}
        print(json.dumps({"store": [address, store.port], "servers": servers}), flush=True)
        for _ in sys.stdin:
            print(json.dumps({"cpu_s": time.process_time()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "links", int(sys.argv[3]))
