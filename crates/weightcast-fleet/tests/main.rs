//! Layouts by rule of fleets of trainers and engines, and what plans of them cost.

mod bounds;
mod cases;
mod checkpoints;
mod common;
mod copies;
mod cost;
mod engines;
mod fleet;
mod forms;
mod hostile;
mod hybrids;
mod least;
mod options;
mod oracle;
mod pinned;
mod rules;
mod specs;
mod towers;
mod trainers;
