"""A reinforcement-learning loop whose weights travel through weightcast.

FSDP2 trainers learn to sort digits, publish every step as a version, and rollouts of another
parallelism (a tensor-parallel group and a single process) bring themselves up to date, sample, and
send what they sampled back. One concept in each file; read them in this order:

- `task`: the prompts and the verifiable reward.
- `policy`: the loss.
- `trainer`: the trainer's loop, where versions are published.
- `rollout`: the rollout's loop, where versions are taken.
- `blocks`, `sampling`, `engine`: the tensor-parallel inference engine the rollouts run.
- `allocation`: the proof that no full projection tensor ever exists in a tensor-parallel rollout.
- `wire`, `backlog`, `samples`: how samples go back.
- `settings`, `processes`, `report`, `picture`, `__main__`: options, child processes, what is shown.

Run it with `python -m weightcast.examples.rl_loop --help`.
"""
