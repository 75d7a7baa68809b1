"""The same weights, moved by weightcast and by what people use instead, in one run: `python -m bench_rl`.

Trainers and rollouts are processes, each on an emulated host of its own behind a slow link where that is
allowed (root), else on loopback. Every way of moving weights does the same updates; after each, every byte of
every rollout is compared. In reading order:

- `settings`: the options
- `model`: the tensors, who holds which rows of them, and what they hold in each version
- `ways`: what is compared: a class for each, with the trainer's and the rollout's part of an update
- `worker`: one process; `meter`: what it counts
- `hosts`: namespaces with links; `crew`: all processes of a run; `services`: what they meet at
- `measure`: the updates of one way; `course`: which measures a run has
- `figures`: what they come to, pure; `forecast`: sizes that no machine here carries
- `table`, `picture`, `page`: what is shown of it
"""
