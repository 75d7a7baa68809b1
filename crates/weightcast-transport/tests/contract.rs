//! One contract, carried out by every way of moving bytes: the reference in this process, direct
//! reads, shared memory and TCP from this process and from another.

#[macro_use]
#[path = "contract/ways.rs"]
mod ways;

#[path = "contract/by_hand.rs"]
mod by_hand;

#[path = "contract/bytes.rs"]
mod bytes;

#[path = "contract/faults.rs"]
mod faults;

#[path = "contract/fork.rs"]
mod fork;

#[path = "contract/given_up.rs"]
mod given_up;

#[path = "contract/holds.rs"]
mod holds;

#[path = "contract/impostor.rs"]
mod impostor;

#[path = "contract/crowd.rs"]
mod crowd;

#[path = "contract/cut.rs"]
mod cut;

#[path = "contract/notes.rs"]
mod notes;

#[path = "contract/places.rs"]
mod places;

#[path = "contract/large.rs"]
mod large;

#[path = "contract/owner.rs"]
mod owner;

#[path = "contract/port.rs"]
mod port;

#[path = "contract/processes.rs"]
mod processes;

#[path = "contract/schedule.rs"]
mod schedule;

#[path = "contract/shared.rs"]
mod shared;

#[path = "contract/target.rs"]
mod target;

#[path = "contract/relay.rs"]
mod relay;

#[path = "contract/computed.rs"]
mod computed;

#[path = "contract/work.rs"]
mod work;

#[path = "contract/truncated.rs"]
mod truncated;

#[path = "contract/writes.rs"]
mod writes;
