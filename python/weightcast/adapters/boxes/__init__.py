"""Tensors as boxes: strided views, what boxes cover, and how pieces lie in a parameter."""
