//! The model of small clusters, fleets and pushes, explored.

mod bounded;
mod fleets;
mod pushes;
