"""A trainer that publishes a CPU copy and trains on while others read it.

The copy costs memory and a copy per version; it buys that the optimizer never waits for readers.
The copy is what is registered, so it is the copy that is immutable while published. Weights on a GPU have
such a copy without being asked for.
"""

import torch

import weightcast as wc
import weightcast.torch as wct

VERSIONS = 3
STEPS_EACH = 20


def main() -> None:
    """Trains STEPS_EACH steps on while each version is published, then lets a rollout take it."""
    torch.manual_seed(0)
    model, teacher, other = (torch.nn.Linear(16, 4) for _ in range(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with (
        wc.serve() as server,
        wc.open(
            "policy", wc.Replica("trainer"), role="trainer", epoch="new", server=server.address
        ) as trainer,
        wc.open("policy", wc.Replica("rollout-0"), server=server.address) as rollout,
    ):
        trainer.register(wct.layout(model, beside=True))
        rollout.register(wct.layout(other))
        for version in range(VERSIONS):
            at_publish = model.weight.detach().clone()
            with trainer.published(version, deadline=30):
                for _ in range(STEPS_EACH):
                    inputs = torch.randn(64, 16)
                    loss = (model(inputs) - teacher(inputs)).square().mean()
                    loss.backward()
                    optimizer.step()  # allowed: the copy is what is published
                    optimizer.zero_grad()
                moved = rollout.update(version, deadline=30)
            assert moved.verified == moved.bytes > 0
            assert torch.equal(other.weight, at_publish), "the rollout got other weights"
            assert not torch.equal(model.weight, at_publish), "the trainer did not train on"
            print(f"version {version}: loss {loss.item():.4f} after {STEPS_EACH} more steps")


if __name__ == "__main__":
    main()
