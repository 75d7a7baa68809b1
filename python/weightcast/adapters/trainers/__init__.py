"""Loops of trainers that others wrote: each publishes after steps of its optimizer, and takes a version back
before the next step changes the weights.

- `steps`: what a loop has to call, and when
- `transformers`, `accelerate`, `lightning`: who calls that in these libraries
- `trl`: how TRL's asynchronous trainer has live engines take the weights
"""
