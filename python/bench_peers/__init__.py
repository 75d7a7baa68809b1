"""The same tensors, moved on one host by weightcast and by others, in one run: `python -m bench_peers`.

A sender and some readers are processes of one host. After each transfer every byte that a reader holds is
compared with what the version is, outside of the measured time; a difference fails the run. In reading order:

- `settings`: the options
- `cases`: the tensors; `content`: what they hold in each version
- `ways`: what is compared: a class for each, with the sender's and the reader's part of a transfer
- `worker`: one sender or reader; `processes`: how they are ended; `meter`: what they cost
- `host`: a process for each way, in that way's environment: forks workers, and measures
- `course`: all ways, one after the other
- `figures`: what it comes to, pure
- `table`, `picture`, `page`: what is shown of it
"""
