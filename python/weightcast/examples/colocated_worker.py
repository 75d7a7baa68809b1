"""A co-located worker: it rolls out and trains in turns, on the same tensors (paper, Figure 4a).

While its weights are published they are immutable, so it samples with them and others copy them;
it unpublishes before the optimizer changes them. No second copy is made.
"""

import torch

import weightcast as wc
import weightcast.torch as wct

STEPS = 5


def main() -> None:
    """Trains a small model to follow a target; a second replica takes each version."""
    torch.manual_seed(0)
    model, teacher, other = (torch.nn.Linear(16, 4) for _ in range(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    losses = []
    with (
        wc.serve() as server,
        wc.open(
            "policy", wc.Replica("worker-0"), role="trainer", epoch="new", server=server.address
        ) as worker,
        wc.open("policy", wc.Replica("other"), role="rollout", server=server.address) as rollout,
    ):
        worker.register(wct.layout(model))
        rollout.register(wct.layout(other))
        for step in range(STEPS):
            with worker.published(step, deadline=30):
                inputs = torch.randn(64, 16)
                with torch.no_grad():
                    sampled = model(inputs)  # the worker's own rollout, on the published tensors
                moved = rollout.update(step, deadline=30)
                assert moved.version == step and moved.verified == moved.bytes > 0
                assert torch.equal(other(inputs), model(inputs)), "the copy computes otherwise"
                assert torch.equal(model(inputs), sampled), "published weights changed"
            loss = (model(inputs) - teacher(inputs)).square().mean()
            loss.backward()
            optimizer.step()  # only now: the weights are no longer published
            optimizer.zero_grad()
            assert not torch.equal(model.weight, other.weight), "training did not move the weights"
            losses.append(loss.item())
            print(f"step {step}: loss {losses[-1]:.4f}, {moved.bytes} bytes taken and verified")
    assert losses[-1] < losses[0]


if __name__ == "__main__":
    main()
