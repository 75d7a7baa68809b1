//! Layouts, plans and the proof of each against worlds of bytes.

mod builder;
mod charges;
mod host_shares;
mod layout;
mod placed;
mod placement;
mod plans;
mod proof;
mod quantise;
mod slice;
mod stored;
mod transforms;
mod unchanged;
mod world;
