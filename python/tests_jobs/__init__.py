"""Loops and arrays of real libraries for trainers: what engines get is what these hold, to the bit."""
