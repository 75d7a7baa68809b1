"""Runnable examples. Each is a program: `python -m weightcast.examples.NAME`.

- `rl_loop`: a whole reinforcement-learning loop, FSDP2 trainers and tensor-parallel rollouts.
- `colocated_worker`: one worker that publishes, rolls out and trains on the same tensors.
- `standalone_rollout`: a rollout that polls for the latest version.
- `cpu_copy_trainer`: a trainer that publishes a CPU copy and trains on.
"""
