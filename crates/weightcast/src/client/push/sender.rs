//! The memory that is written from: grants come in, and parcels go out.
//!
//! No byte of the memory is read once [`withdraw`] has returned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weightcast_protocol::push::{PushSender, SenderId, SenderOutput};
use weightcast_protocol::{Safeguards, Sum, Version};
use weightcast_transport::{GrantId, Peer, TargetJob, TransferOptions, WriteGrant, write};

use super::outbox::post;
use super::parcels::Parcel;
use super::plans::PushPlan;
use super::sending::{GrantPlace, GrantUse, SendingState};
use super::server::layouts;
use super::word::{GrantWord, PushWord, WrittenWord};
use crate::client::handle_state::HandleState;
use crate::client::memory::registration::RegisteredShard;
use crate::client::reading::bound_source::strided;
use crate::error::Error;
use crate::limits::PUSH_WRITERS;

/// How long one parcel may take. A target that takes longer is written by nobody.
const PARCEL: Duration = Duration::from_secs(60);
/// How long the server may take to tell a target's layouts.
const LAYOUTS: Duration = Duration::from_secs(10);

/// The memory is about to change, or is another: nothing of it is read once this returns.
pub(in crate::client) fn withdraw(state: &Arc<HandleState>) {
    let room = &state.push.sending;
    {
        let mut sending = room.state.lock().expect("no panic while held");
        let Some((_, machine)) = &mut sending.machine else { return };
        machine.withdraw();
        carry_out(&mut sending, state);
        std::mem::take(&mut sending.cancel).store(true, Ordering::Release);
        sending.machine = None;
    }
    drop(room.reading.write().expect("no panic while held"));
}

/// The machine of the memory as it is registered now, holding what the session holds.
fn machine<'a>(sending: &'a mut SendingState, state: &HandleState) -> Option<&'a mut PushSender> {
    let (_, export) = state.current()?;
    let id = SenderId(export.0);
    if sending.machine.as_ref().is_none_or(|(of, _)| *of != id) {
        sending.machine = Some((id, PushSender::new(id, Safeguards::default())));
    }
    let (_, machine) = sending.machine.as_mut()?;
    // Under the lock: `withdraw` comes after a view that holds nothing, and waits for the lock.
    match state.view.lock().expect("no panic while held").held {
        held if held == machine.holds() => {}
        Some(version) => machine.hold(version),
        None => machine.withdraw(),
    }
    Some(machine)
}

/// Does what the machine says.
fn carry_out(sending: &mut SendingState, state: &Arc<HandleState>) {
    let Some((_, machine)) = &mut sending.machine else { return };
    while let Some(output) = machine.poll_output() {
        match output {
            SenderOutput::Write(grant) => sending.waiting.push_back((grant.target, grant.number)),
            SenderOutput::Tell(written) => {
                let Some(job) = sending.uses.get(&(written.target, written.grant)) else {
                    continue;
                };
                let (at, sums) = (job.word.at.clone(), job.sums.clone());
                let word = PushWord::Written(WrittenWord { written, sums });
                post(state, &at, word);
            }
            SenderOutput::Refuse(refused) => {
                let Some(job) = sending.uses.get(&(refused.target, refused.grant)) else {
                    continue;
                };
                let driver = job.word.driver.clone();
                post(state, &driver, PushWord::Refused(refused));
            }
        }
    }
    sending.uses.retain(|(target, number), _| machine.may_write(*target, *number));
}

/// The memory holds this version from now on: grants that came too early are used.
pub(in crate::client) fn hold(state: &Arc<HandleState>, version: Version) {
    let due = state.push.sending.state.lock().expect("no panic while held").early.due(version);
    for word in due {
        grant(state, word);
    }
}

/// A grant came in, perhaps not for the first time.
pub(super) fn grant(state: &Arc<HandleState>, word: GrantWord) -> bool {
    let mut sending = state.push.sending.state.lock().expect("no panic while held");
    let holds = state.view.lock().expect("no panic while held").held;
    if state.current().is_some() && sending.early.keep(holds, &word) {
        return true;
    }
    let place = (word.grant.target, word.grant.number);
    let (grant, word) = (word.grant.clone(), Arc::new(word));
    sending.uses.entry(place).or_insert_with(|| GrantUse { word, sums: BTreeMap::new() });
    let Some(machine) = machine(&mut sending, state) else {
        sending.uses.remove(&place);
        return false;
    };
    machine.handle_grant(grant);
    carry_out(&mut sending, state);
    let more = !sending.waiting.is_empty() && sending.writers < PUSH_WRITERS;
    if more {
        let of = Arc::clone(state);
        let spawned =
            thread::Builder::new().name("weightcast-push".to_owned()).spawn(move || write_all(&of));
        sending.writers += usize::from(spawned.is_ok());
    }
    true
}

/// Uses grants, one after the other, until none waits.
fn write_all(state: &Arc<HandleState>) {
    let room = &state.push.sending;
    loop {
        let next = {
            let mut sending = room.state.lock().expect("no panic while held");
            let next = sending.waiting.pop_front();
            if next.is_none() {
                sending.writers -= 1;
                return;
            }
            next.and_then(|place| Some((place, Arc::clone(&sending.uses.get(&place)?.word))))
        };
        let Some((place, word)) = next else { continue };
        if let Err(error) = use_grant(state, place, &word) {
            tracing::info!(%error, target = word.grant.target.0, "a grant of a push was not used");
            settle(state, |machine| machine.handle_failed(place.0, place.1));
        }
    }
}

/// Tells the machine something, and does what it says.
fn settle(state: &Arc<HandleState>, tell: impl FnOnce(&mut PushSender)) {
    let mut sending = state.push.sending.state.lock().expect("no panic while held");
    if let Some((_, machine)) = &mut sending.machine {
        tell(machine);
    }
    carry_out(&mut sending, state);
}

/// Writes the parcels of a grant, as long as they may be written.
fn use_grant(state: &Arc<HandleState>, place: GrantPlace, word: &GrantWord) -> Result<(), Error> {
    let plan = planned(state, word)?;
    let peer = state.routes.peer(&word.at, Instant::now() + PARCEL).map_err(Error::Transport)?;
    let grant = opened(state, word, &plan);
    for number in &word.grant.parcels {
        let parcel = own_parcel(state, &plan, *number)?;
        let Some(sum) = write_parcel(state, place, &peer, &grant, &plan, parcel)? else {
            return Ok(()); // the machine has said why
        };
        let mut sending = state.push.sending.state.lock().expect("no panic while held");
        let Some(job) = sending.uses.get_mut(&place) else { return Ok(()) };
        job.sums.insert(*number, sum);
        if let Some((_, machine)) = &mut sending.machine {
            machine.handle_parcel(place.0, place.1, *number);
        }
        carry_out(&mut sending, state);
    }
    Ok(())
}

/// The plan that the driver and the target have.
fn planned(state: &Arc<HandleState>, word: &GrantWord) -> Result<Arc<PushPlan>, Error> {
    if state.push.layouts() != word.base {
        return Err(Error::misuse("the plan of a push is of other layouts than the sender's"));
    }
    let (targets, sources) =
        (layouts(state, &word.layouts, LAYOUTS)?, layouts(state, &word.base, LAYOUTS)?);
    let of = (word.layouts.clone(), word.shard, word.base.clone());
    let plan = state.push.plans.get(of, &targets, &sources)?;
    match plan.fingerprint == word.parcels {
        true => Ok(plan),
        false => {
            Err(Error::misuse("driver and sender cut a plan in different ways: run one release"))
        }
    }
}

/// The transport's half of a grant.
fn opened(state: &HandleState, word: &GrantWord, plan: &PushPlan) -> WriteGrant {
    let (id, generation) = (GrantId(word.opened.id), word.grant.generation.0);
    let known = word.opened.known(word.grant.target, word.grant.sender, generation);
    let secret = state.routes.auth.grant_secret(id, &known);
    WriteGrant { id, generation, secret, lens: plan.target.layout.buffers().to_vec() }
}

/// A parcel that comes from this shard.
fn own_parcel<'a>(
    state: &HandleState,
    plan: &'a PushPlan,
    number: u32,
) -> Result<&'a Parcel, Error> {
    let own = |parcel: &&Parcel| parcel.source == state.label.replica.shard;
    plan.parcels.get(number as usize).filter(own).ok_or_else(|| {
        Error::misuse(format!("parcel {number} of a push does not come from this shard"))
    })
}

/// Writes one parcel, and returns its sum. `None`: it may not be written any more.
fn write_parcel(
    state: &HandleState,
    place: GrantPlace,
    peer: &Peer,
    grant: &WriteGrant,
    plan: &PushPlan,
    parcel: &Parcel,
) -> Result<Option<Sum>, Error> {
    let room = &state.push.sending;
    let _reading = room.reading.read().expect("no panic while held");
    let Some((registration, cancel)) = may_read(state, place) else { return Ok(None) };
    let options = TransferOptions {
        threads: state.routes.threads,
        deadline: Some(Instant::now() + PARCEL),
        cancel,
        slots: plan.target.cells.len(),
        holds: state.routes.holds.clone(),
        ..TransferOptions::default()
    };
    let copies = parcel.copies.iter().map(strided).collect();
    let job = TargetJob { peer, grant, copies };
    let digests = write(&[job], &registration.regions, &options);
    let digests = digests.map_err(|error| Error::Transport(error.to_string()))?;
    Ok(Some(plan.sum(&digests)))
}

/// The memory, if a grant may still be used. Asked while [`SendingRoom::reading`](super::sending::SendingRoom) is held.
fn may_read(
    state: &HandleState,
    (target, grant): GrantPlace,
) -> Option<(Arc<RegisteredShard>, Arc<AtomicBool>)> {
    let sending = state.push.sending.state.lock().expect("no panic while held");
    let (of, machine) = sending.machine.as_ref()?;
    let (registration, export) = state.current()?;
    let may = machine.may_write(target, grant) && *of == SenderId(export.0);
    may.then(|| (registration, Arc::clone(&sending.cancel)))
}

#[cfg(test)]
mod tests;
