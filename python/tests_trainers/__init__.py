"""Trainers that run: Megatron-core and DeepSpeed on several ranks, and engines that read what they publish."""
