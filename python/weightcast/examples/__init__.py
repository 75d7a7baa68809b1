"""Runnable examples. Each is a program: `python -m weightcast.examples.NAME`.

- `rl_loop`: a whole reinforcement-learning loop, FSDP2 trainers and tensor-parallel rollouts.
- `rl`: the loop that people compare: GRPO and PPO, several trainers and engines, bounded staleness.
- `colocated_worker`: one worker that publishes, rolls out and trains on the same tensors.
- `standalone_rollout`: a rollout that polls for the latest version.
- `ray_rl`: a loop on Ray that outlives its nodes; `ray_loss`: the same with and without a loss, as a picture;
  `ray_autoscale`: rollouts that come and go.
- `cpu_copy_trainer`: a trainer that publishes a CPU copy and trains on.
"""
