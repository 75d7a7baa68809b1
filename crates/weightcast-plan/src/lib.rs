//! weightcast: slices, layouts and the planner that intersects them (pure)

#![forbid(unsafe_code)]
