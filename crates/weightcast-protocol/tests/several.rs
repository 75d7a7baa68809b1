//! Rules that show only where there are several: shards, groups, versions, models, servers.

mod counted;
mod lengths;
mod openings;
mod retained;
mod seeds;
mod seen;
mod sources;
