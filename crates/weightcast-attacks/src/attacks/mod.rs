//! All attacks, by concern: one file each.

mod answers;
mod claims;
mod dials;
mod digests;
mod grants;
mod identities;
mod manifests;
mod memory;
mod neighbours;
mod recordings;
mod replicas;
mod seats;
mod terms;

use anyhow::Result;

pub(crate) use neighbours::{StrangerArguments, stranger};

use crate::scene::Scene;

/// One attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Of the list in docs/results/attacks.md.
    pub(crate) item: &'static str,
    /// The attacker's deed, in a line.
    pub(crate) what: &'static str,
    pub(crate) scene: fn() -> Result<Scene>,
    pub(crate) carry_out: fn(&mut Scene) -> Result<()>,
}

/// A server that has a secret of its own and checks itself.
fn paranoid() -> Result<Scene> {
    Scene::guarded(&["--paranoid"])
}

/// A server with a secret of its own.
fn guarded() -> Result<Scene> {
    Scene::guarded(&[])
}

/// A server as it is by default.
fn plain() -> Result<Scene> {
    Scene::new(&[])
}

/// An attack on a scene.
const fn attack(
    name: &'static str,
    item: &'static str,
    what: &'static str,
    scene: fn() -> Result<Scene>,
    carry_out: fn(&mut Scene) -> Result<()>,
) -> Attack {
    Attack { name, item, what, scene, carry_out }
}

/// In the order of the list.
pub(crate) const ALL: &[Attack] = &[
    attack(
        "memory-of-another",
        "10",
        "a source passes a third process off as itself: its reader copies that one's memory",
        plain,
        memory::of_another,
    ),
    attack(
        "memory-of-itself",
        "10",
        "a source passes its reader off as itself: it copies, and relays, memory of its own",
        plain,
        memory::of_itself,
    ),
    attack(
        "memory-behind-its-port",
        "10",
        "the same from the third process's own port number, at another address of the host",
        plain,
        memory::behind_its_port,
    ),
    attack(
        "chosen-incarnation",
        "11",
        "a client comes over with the number that the next group will have, then announces",
        paranoid,
        identities::chosen_incarnation,
    ),
    attack(
        "unregistered-copy",
        "11",
        "a client announces the newest version without memory; honest rollouts update",
        paranoid,
        identities::unregistered_copy,
    ),
    attack(
        "forged-copy",
        "11",
        "the same with memory that nobody can read, and sums that it made up",
        paranoid,
        identities::forged_copy,
    ),
    attack(
        "last-term",
        "12",
        "a client tells the server of the last term that there is; then the server restarts",
        guarded,
        terms::last_term,
    ),
    attack(
        "last-epoch",
        "12",
        "a client announces the last epoch at a settled server, and at one that has restarted",
        guarded,
        terms::last_epoch,
    ),
    attack(
        "guessed-incarnation",
        "12",
        "after a restart a client takes the place of a trainer whose number it has guessed",
        guarded,
        terms::guessed_incarnation,
    ),
    attack(
        "empty-rows",
        "13",
        "twenty requests of 72 bytes name 2^64-1 rows without a byte",
        plain,
        digests::empty_rows,
    ),
    attack(
        "tiny-rows",
        "13",
        "a digest is asked for over 2^30 rows of a byte; the reader hangs up",
        plain,
        digests::tiny_rows,
    ),
    attack(
        "unfinished-manifests",
        "14",
        "64 connections send manifests, small and large, and never end them",
        plain,
        manifests::unfinished,
    ),
    attack(
        "unread-answers",
        "14",
        "64 connections ask for large manifests, again and again, and take nothing",
        plain,
        answers::unread,
    ),
    attack(
        "empty-entries",
        "14",
        "a source whose manifest is eight million entries of two bytes",
        plain,
        manifests::empty_entries,
    ),
    attack(
        "tiny-manifests",
        "14",
        "as many tiny manifests as the server keeps; then an honest layout comes",
        plain,
        manifests::tiny,
    ),
    attack(
        "many-replicas",
        "14",
        "thousands of replicas with long names: status, list and unpublish of the honest",
        plain,
        replicas::many,
    ),
    attack(
        "claim-by-inspect",
        "15",
        "a rollout without a byte shows the sum that Inspect gave it; the last copy goes",
        plain,
        claims::by_inspect,
    ),
    attack(
        "claim-by-digest",
        "15",
        "the same with the sum of digests that the trainer's data port gave",
        plain,
        claims::by_digest,
    ),
    attack(
        "claim-by-note",
        "15",
        "the same with the note on the trainer's export",
        plain,
        claims::by_note,
    ),
    attack(
        "sipping-readers",
        "16",
        "1,024 readers take a byte now and then; an honest one comes",
        plain,
        seats::sipping,
    ),
    attack(
        "idle-readers",
        "16",
        "idle readers until a trainer has no descriptor left; it opens a handle",
        plain,
        seats::idle,
    ),
    attack(
        "reset-connections",
        "16",
        "connections without a token that are reset as soon as they are made",
        plain,
        seats::reset,
    ),
    attack(
        "churning-readers",
        "16",
        "1,024 readers that ask for little, again and again, and never end a request",
        plain,
        seats::churning,
    ),
    attack(
        "another-user",
        "17",
        "another user of the host tries a server and a data port on loopback, without a token",
        plain,
        neighbours::another_user,
    ),
    attack(
        "writable-files",
        "17",
        "the token file, and the directory of plans, can be written by others",
        plain,
        neighbours::writable_files,
    ),
    attack(
        "any-address",
        "17",
        "a source names an address that is not its own, for readers to connect to",
        plain,
        neighbours::any_address,
    ),
    attack(
        "forged-grants",
        "18",
        "writes with guessed and borrowed secrets, and with any at all to a trainer's port",
        plain,
        grants::forged,
    ),
    attack(
        "expired-grants",
        "18",
        "writes by the right secret of a grant that has expired, was closed, or ended by an export",
        plain,
        grants::expired,
    ),
    attack(
        "grants-exceeded",
        "18",
        "the writer itself writes beyond its grant, and other bytes than it says",
        plain,
        grants::out_of_range,
    ),
    attack(
        "replayed-grants",
        "18",
        "writes that were overheard, once more on their connection and on another",
        plain,
        grants::replayed,
    ),
    attack(
        "dial-back",
        "19",
        "a client has the server connect to services of its host, to any port, and to many",
        plain,
        dials::back,
    ),
    attack(
        "endless-recordings",
        "20",
        "64 connections have the server write recordings, one after the other",
        recordings::scene,
        recordings::endless,
    ),
];
