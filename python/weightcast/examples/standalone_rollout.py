"""A stand-alone rollout: it samples all the time and polls for the latest version (Figure 4b).

It never waits for the trainer: between two batches it asks for the latest version and goes on with
what it has if there is nothing newer. Here the trainer is a thread that writes its version number
into every weight, so that a torn or mixed copy would show.
"""

from concurrent.futures import ThreadPoolExecutor

import torch

import weightcast as wc
import weightcast.torch as wct

STEPS = 10


def train(server: str) -> None:
    """Publishes STEPS versions, each until the rollout has taken it or a newer one exists."""
    model = torch.nn.Linear(64, 64)
    me = wc.Replica("trainer")
    with wc.open("policy", me, role="trainer", epoch="new", server=server) as handle:
        handle.register(wct.layout(model))
        for step in range(STEPS):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(step)
            with handle.published(step, deadline=30):
                handle.wait(wc.held(step, by=1), deadline=30)


def main() -> None:
    """Samples until it has seen the last version."""
    model, batches, updates = torch.nn.Linear(64, 64), 0, 0
    with wc.serve() as server, ThreadPoolExecutor(1) as threads:
        trainer = threads.submit(train, server.address)
        with wc.open("policy", wc.Replica("rollout-0"), server=server.address) as handle:
            handle.register(wct.layout(model))
            handle.replicate("latest", deadline=30)  # nothing to sample with before the first
            while (before := handle.version or 0) < STEPS - 1:
                if handle.update("latest", deadline=30):
                    updates += 1
                    assert (handle.version or 0) > before
                assert all((p == handle.version).all() for p in model.parameters()), "torn copy"
                model(torch.randn(256, 64))  # a batch of inference
                batches += 1
            trainer.result(timeout=30)  # it waits to see the last version here: close after it
    assert updates == STEPS - 1
    print(f"{batches} batches sampled, {updates} updates, every copy whole")


if __name__ == "__main__":
    main()
