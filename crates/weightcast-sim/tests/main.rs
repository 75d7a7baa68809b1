//! Random worlds of the simulator, and what is written of them.

mod depth_bound;
mod page;
mod pinned;
mod pushes;
mod recorded;
mod scenarios;
mod updates;
mod worlds;
