//! Rules that show only where there are several: shards, groups, versions, models, servers.

mod cluster;

#[path = "several/counted.rs"]
mod counted;
#[path = "several/lengths.rs"]
mod lengths;
#[path = "several/openings.rs"]
mod openings;
#[path = "several/retained.rs"]
mod retained;
#[path = "several/seeds.rs"]
mod seeds;
#[path = "several/seen.rs"]
mod seen;
#[path = "several/sources.rs"]
mod sources;
