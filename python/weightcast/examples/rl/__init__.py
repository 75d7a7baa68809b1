"""The reinforcement-learning loop that people compare, over weightcast.

N trainers (DDP, FSDP2 or Megatron-core) learn by GRPO or PPO; M rollouts (the small engine of
`weightcast.examples.rl_loop`, or vLLM) sample meanwhile and bring themselves up to date. Staleness
is bounded, every sample bears the version and the digest of the weights that made it, and rollouts
may be slow or be killed. One concept in each file; read them in this order:

- `settings`: the options, and what a child process is told.
- `models`: Qwen2 and GPT-2 of `transformers`, and a head that values what a policy has written.
- `alphabet`: the task's digits as tokens of the model.
- `grpo`, `ppo`: the algorithms; `lessons`: what both make of a batch, and how often it is learnt.
- `learner`: what a trainer asks of the ranks that train; `ddp`, `fsdp2`, `megatron`: how they do.
- `stamp`: the digest of the weights, which travels with them.
- `trainer`: the trainer's loop, where versions are published.
- `engines`: what a rollout asks of an engine; `small`, `gpt2`, `vllm`: the engines.
- `rollout`: the rollout's loop, where versions are taken.
- `supervisor`: child processes; a rollout that dies is replaced.
- `account`, `__main__`: what is shown and written.

Samples go back as in `rl_loop`: its `wire`, `backlog`, `samples`; its `task`, `policy`, `engine` and
`blocks` serve here too. Run it with `python -m weightcast.examples.rl --help`.
"""
