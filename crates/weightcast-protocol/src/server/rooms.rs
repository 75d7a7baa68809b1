//! The rooms, and which stores each may change.
//!
//! A room works through a handler: a struct that borrows the stores that the room may change, and
//! reads others. A handler is made for one call, by the dispatcher or by a room above. So the rooms
//! form layers, from the lowest to the highest: `copies` and `calls`, `durability`, `transfers`,
//! `versions`, `membership`, and the dispatcher. A room can't reach a room above. Work for a room
//! above is returned, or put on the agenda.
//!
//! [`Books`] give every room read-only access.

use std::collections::VecDeque;

use crate::server::Server;
use crate::server::config::ServerConfig;
use crate::server::stores::agenda::Agenda;
use crate::server::stores::blobs::Blobs;
use crate::server::stores::challenges::Challenges;
use crate::server::stores::connections::Connections;
use crate::server::stores::counters::Counters;
use crate::server::stores::edges::Edges;
use crate::server::stores::group::Groups;
use crate::server::stores::models::Models;
use crate::server::stores::numbers::Numbers;
use crate::server::stores::retention::RetentionLoss;
use crate::server::stores::sessions::Sessions;
use crate::server::stores::terms::Terms;
use crate::server::stores::timers::Timers;

/// Groups, models and the edges between groups, as they are now. Read-only rules are written over
/// the books, in the room that they belong to.
#[derive(Clone, Copy)]
pub(in crate::server) struct Books<'a> {
    pub(in crate::server) config: &'a ServerConfig,
    pub(in crate::server) terms: &'a Terms,
    pub(in crate::server) groups: &'a Groups,
    pub(in crate::server) models: &'a Models,
    pub(in crate::server) edges: &'a Edges,
}

impl Books<'_> {
    /// Whether clients of an earlier term may still come over: what is unknown may exist (A5).
    pub(in crate::server) fn recovers(&self) -> bool {
        self.terms.recovers(self.config.safeguards)
    }
}

/// Defines a handler, and the types that can make it. Each field is borrowed from the maker's field
/// of the same name.
macro_rules! handler {
    (
        $(#[$doc:meta])*
        $Handler:ident is $room:ident() of $($Maker:ty),+;
        reads $reads:tt
        changes $changes:tt
    ) => {
        handler!(@define $(#[$doc])* $Handler $reads $changes);
        $(impl $Maker {
            pub(in crate::server) fn $room(&mut self) -> $Handler<'_> {
                handler!(@lend self $Handler $reads $changes)
            }
        })+
    };
    (
        @define $(#[$doc:meta])* $Handler:ident
        { $($r:ident: $Read:ty),* } { $($c:ident: $Changed:ty),* }
    ) => {
        $(#[$doc])*
        pub(in crate::server) struct $Handler<'a> {
            $(pub(in crate::server) $r: &'a $Read,)*
            $(pub(in crate::server) $c: &'a mut $Changed,)*
        }
    };
    (@lend $maker:ident $Handler:ident { $($r:ident: $R:ty),* } { $($c:ident: $C:ty),* }) => {
        $Handler { $($r: &$maker.$r,)* $($c: &mut $maker.$c,)* }
    };
}

/// Lets handlers and the server read the books.
macro_rules! books {
    ($($Maker:ty),+) => {
        $(impl $Maker {
            pub(in crate::server) fn books(&self) -> Books<'_> {
                Books {
                    config: &self.config,
                    terms: &self.terms,
                    groups: &self.groups,
                    models: &self.models,
                    edges: &self.edges,
                }
            }
        })+
    };
}

books!(
    Server,
    MembershipHandler<'_>,
    VersionHandler<'_>,
    TransferHandler<'_>,
    DurabilityHandler<'_>
);

handler! {
    /// Which copies there are, and which of them are listed.
    CopyHandler is copies() of
        MembershipHandler<'_>, VersionHandler<'_>, TransferHandler<'_>, DurabilityHandler<'_>;
    reads { config: ServerConfig }
    changes { groups: Groups, models: Models, agenda: Agenda }
}

handler! {
    /// A group's call: its place in the queue, its one answer; what its shards have registered.
    CallHandler is calls() of
        Server, MembershipHandler<'_>, VersionHandler<'_>, TransferHandler<'_>;
    reads { config: ServerConfig, terms: Terms }
    changes {
        groups: Groups, models: Models, blobs: Blobs, timers: Timers, numbers: Numbers,
        agenda: Agenda, connections: Connections
    }
}

handler! {
    /// Copies that must not be given up yet, copies that can't be relied on, and copies that are
    /// made elsewhere.
    DurabilityHandler is durability() of
        Server, MembershipHandler<'_>, VersionHandler<'_>, TransferHandler<'_>;
    reads { config: ServerConfig, terms: Terms, edges: Edges }
    changes {
        groups: Groups, models: Models, challenges: Challenges, losses: VecDeque<RetentionLoss>,
        timers: Timers, numbers: Numbers, counters: Counters, agenda: Agenda,
        connections: Connections
    }
}

handler! {
    /// Who reads from whom, and how each transfer goes on.
    TransferHandler is transfers() of Server, MembershipHandler<'_>, VersionHandler<'_>;
    reads { config: ServerConfig, terms: Terms }
    changes {
        groups: Groups, models: Models, edges: Edges, blobs: Blobs, challenges: Challenges,
        losses: VecDeque<RetentionLoss>, timers: Timers, numbers: Numbers, counters: Counters,
        agenda: Agenda, connections: Connections
    }
}

handler! {
    /// The content of each version, and whether a copy has that content.
    VersionHandler is versions() of Server, MembershipHandler<'_>;
    reads { config: ServerConfig, terms: Terms }
    changes {
        groups: Groups, models: Models, edges: Edges, blobs: Blobs, challenges: Challenges,
        losses: VecDeque<RetentionLoss>, timers: Timers, numbers: Numbers, counters: Counters,
        agenda: Agenda, connections: Connections
    }
}

handler! {
    /// Which session belongs to which group, in which term.
    MembershipHandler is membership() of Server;
    reads { config: ServerConfig }
    changes {
        terms: Terms, sessions: Sessions, groups: Groups, models: Models, edges: Edges,
        blobs: Blobs, challenges: Challenges, losses: VecDeque<RetentionLoss>, timers: Timers,
        numbers: Numbers, counters: Counters, agenda: Agenda, connections: Connections
    }
}
